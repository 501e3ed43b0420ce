// Light or dark: as the system says until the reader says otherwise; on paper always light.
import { allNow, redraw } from './charts.js';

const dark = matchMedia('(prefers-color-scheme: dark)'), paper = matchMedia('print');
const button = document.getElementById('theme');
let chosen = null;
let printing = false;

function apply() {
  const theme = printing || paper.matches ? 'light' : (chosen ?? (dark.matches ? 'dark' : 'light'));
  document.documentElement.dataset.theme = theme;
  button.textContent = theme === 'dark' ? 'Light' : 'Dark';
  button.setAttribute('aria-label', `Use ${theme === 'dark' ? 'light' : 'dark'} colours`);
  redraw();
}

// Paper has nothing to click on and is light.
function print(now) {
  if (now) {
    document.querySelectorAll('details').forEach((one) => { one.open = true; });
    allNow();
  }
  printing = now;
  apply();
}

export function startTheme() {
  button.hidden = false;
  button.addEventListener('click', () => {
    chosen = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    apply();
  });
  dark.addEventListener('change', apply);
  paper.addEventListener('change', () => print(paper.matches));
  addEventListener('beforeprint', () => print(true));
  addEventListener('afterprint', () => print(false));
  apply();
}
