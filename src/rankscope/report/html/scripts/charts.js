// Draws each picture when it comes near, and again when the window or the colours change.
import { Bars } from './bars.js';
import { Heat } from './heat.js';
import { Sizes } from './sizes.js';
import { Top } from './top.js';
import { Icicle } from './icicle.js';

const KINDS = { bars: Bars, heat: Heat, sizes: Sizes, top: Top, icicle: Icicle };
const drawn = new Set();
const waiting = new Map(); // element to what makes it

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) begin(entry.target);
}, { rootMargin: '400px' });

function begin(element) {
  const start = waiting.get(element);
  waiting.delete(element);
  near.unobserve(element);
  start?.();
}

// Whatever takes time waits until it is near to be seen.
export function later(element, start) {
  waiting.set(element, start);
  near.observe(element);
}

export function allNow() {
  [...waiting.keys()].forEach(begin);
}

export function addChart(chart, table, host, view) {
  drawn.add(new KINDS[chart.kind](chart, table, host, view));
}

export function redraw() {
  drawn.forEach((picture) => picture.draw());
}
