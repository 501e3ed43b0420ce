// Draws each picture when it comes near, and again when its place or the colours change.
import { Bars } from './bars.js';
import { Curve } from './curve.js';
import { Heat } from './heat.js';
import { Sizes } from './sizes.js';
import { Top } from './top.js';
import { Intervals } from './intervals.js';
import { History } from './history.js';
import { Icicle } from './icicle.js';
import { Timeline } from './timeline.js';

const KINDS = { bars: Bars, heat: Heat, sizes: Sizes, top: Top, icicle: Icicle, curve: Curve, timeline: Timeline, intervals: Intervals, history: History };
const drawn = new Map(); // place of a picture on the page to it
let views = new Map(); // the same to what the reader had made of it
const waiting = new Map(); // element to what makes it

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) begin(entry.target);
}, { rootMargin: '400px' });

function begin(element) {
  const start = waiting.get(element);
  waiting.delete(element);
  near.unobserve(element);
  start?.();
  element.style.minHeight = '';
}

// What takes time waits until it is near to be seen, or until there is nothing else to do; its place is kept. The words
// and figures are painted before the first picture is drawn.
export function later(element, height, start) {
  element.style.minHeight = `${height}px`;
  waiting.set(element, start);
  if (painted) near.observe(element);
}

let painted = false;
requestAnimationFrame(() => setTimeout(() => {
  painted = true;
  waiting.forEach((_, element) => near.observe(element));
  whenIdle();
}));

export function allNow() {
  [...waiting.keys()].forEach(begin);
}

// One after the other while nothing else happens.
export function whenIdle() {
  const [next] = waiting.keys();
  if (!next || !painted) return;
  const go = () => { begin(next); whenIdle(); };
  if (window.requestIdleCallback) requestIdleCallback(go);
  else setTimeout(go, 50);
}

export const heightOf = (chart, table, besides) => KINDS[chart.kind].height(chart, table, besides);

const widths = new Map(); // element to its picture and how wide it was when that was drawn

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const known = widths.get(target);
    if (target.clientWidth && target.clientWidth !== known.width) {
      known.width = target.clientWidth;
      known.picture.draw();
    }
  }
});

export function addChart(chart, table, host, besides) {
  const picture = new KINDS[chart.kind](chart, table, host, besides), name = host.parentElement.id;
  if (views.get(name)) picture.view = views.get(name);
  drawn.set(name, picture);
  widths.set(host, { picture, width: host.clientWidth });
  resized.observe(host);
}

// Before all pictures are made anew: the ones that were drawn, which are to look as they did.
export function forgetPictures() {
  const before = [...drawn.keys()];
  views = new Map([...drawn].map(([name, picture]) => [name, picture.view]));
  resized.disconnect();
  near.disconnect();
  [drawn, waiting, widths].forEach((one) => one.clear());
  return before;
}

export const beginNow = (element) => element && begin(element);

export function redraw() {
  drawn.forEach((picture) => picture.draw());
}
