// The box beside the pointer that says what lies under it.
import { make, tell } from './elements.js';

const box = make('div', { id: 'hover', 'aria-hidden': 'true', hidden: true });
document.body.append(box);

// lines: [words, value, colour or null]
export function showHover(title, lines, x, y, aloud = false) {
  box.replaceChildren(make('strong', {}, title));
  for (const [words, value, colour] of lines) {
    const swatch = make('span', { class: 'swatch' });
    if (colour) swatch.style.background = colour;
    box.append(make('span', { class: 'line' }, ...(colour ? [swatch] : []), words, make('b', {}, value)));
  }
  box.hidden = false;
  const right = x + 16 + box.offsetWidth > document.documentElement.clientWidth;
  box.style.left = `${scrollX + Math.max(4, right ? x - box.offsetWidth - 12 : x + 16)}px`;
  const low = y + 16 + box.offsetHeight > innerHeight;
  box.style.top = `${scrollY + Math.max(4, low ? y - box.offsetHeight - 12 : y + 16)}px`;
  if (aloud) tell([title, ...lines.map(([words, value]) => `${words} ${value}`)].join(', '));
}

export function hideHover() {
  box.hidden = true;
}
