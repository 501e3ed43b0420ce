// Asks the server for what the job has done since, and takes it over without loading the page again.
import { make } from './elements.js';
import { refill } from './main.js';

const told = make('span', { id: 'live', class: 'count' });
document.querySelector('.actions').prepend(told);
const place = location.pathname === '/' ? '/content/' : location.pathname.replace('/run/', '/content/');
const RETRY_S = 5;
let held = false; // a pointer is down: nothing may move under it

addEventListener('pointerdown', () => { held = true; });
['pointerup', 'pointercancel'].forEach((name) => addEventListener(name, () => { held = false; }));

const now = () => new Date().toLocaleTimeString('en-GB');

async function ask() {
  const reply = await fetch(place, { cache: 'no-store' });
  if (!reply.ok) return say(reply.status === 404 ? 'This run is gone' : 'Refused: open the address again', 0);
  const content = await reply.json();
  while (held) await new Promise((done) => { setTimeout(done, 100); });
  refill(content);
  return say(content.refresh_s ? `Live, updated ${now()}` : `Ended, updated ${now()}`, content.refresh_s);
}

function say(words, after_s) {
  told.textContent = words;
  if (after_s) setTimeout(later, 1000 * after_s);
}

// A page that nobody sees asks for nothing.
function later() {
  if (document.hidden) addEventListener('visibilitychange', later, { once: true });
  else ask().catch(() => say(`No answer since ${now()}`, RETRY_S));
}

say('Live', Number(document.body.dataset.refresh));
