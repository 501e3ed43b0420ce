// Ranks × time. What is drawn comes in levels of detail: the whole run coarsely, chosen steps finely. All blocks are put
// into one array of pixels, so that a picture costs the same however many there are.
import { colourOf, make, tell } from './elements.js';
import { place } from './data.js';
import { axisUnit, shown, tickText, timeText } from './numbers.js';
import { kindColour, nameColour } from './colours.js';
import { hideHover, showHover } from './hover.js';
import { measureTexts } from './bars.js';
import { firstAfter, unpacked } from './levels.js';
import { onSteps } from './selection.js';

const FONT = '12px system-ui, sans-serif', BOTTOM = 38, TOP = 4, RIGHT = 12;
const TALLEST = 560, THIN = 3, THICK = 18, GAP = 4, CLOSEST = 50; // ns that are the whole width at most zoomed in
const LEAST_LABEL = 40; // pixels of a block that is named
const little = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

export class Timeline {
  constructor(chart, table, host, drawn) {
    Object.assign(this, { chart, table, host, drawn });
    this.begins = table.rows.map((row) => chart.parts.map((name) => row[place(table, name)]));
    this.found = null; // by name: whether it is searched for
    const colours = drawn.names.map((name, at) => kindColour(drawn.kinds[at]) ?? nameColour(name));
    this.colours = colours.map((colour) => packed(colour));
    this.inks = colours.map(inkOn);
    this.isSteps = drawn.lines.map(([, kind]) => kind === 'steps');
    this.places();
    this.canvas = make('canvas', { tabindex: '0', role: 'img', 'aria-label': this.spoken() });
    this.listen();
    this.told = make('span', { class: 'count', role: 'status' });
    host.replaceChildren(this.controls(), this.canvas);
    this.choose(0, false);
    this.ready = Promise.all(drawn.levels.map(unpacked)).then((levels) => {
      this.levels = levels;
      host.dataset.unpacked = 'yes';
      this.draw();
    }, () => { this.told.textContent = 'This browser cannot unpack the timeline (DecompressionStream is missing).'; });
    onSteps((steps) => (steps ? this.look(steps.begin, steps.end) : this.choose(0)));
  }

  static height(chart, table, drawn) {
    return drawn ? tallOf(drawn).height + TOP + BOTTOM + 70 : 300;
  }

  spoken() {
    return `${this.chart.title}. Ranks by time. Left and right arrow keys move, plus and minus zoom, Home shows the whole run, ` +
      'up and down arrow keys go to the next block of a line and tell it. The table below has the numbers.';
  }

  // Where each line is, the lines of a rank close together.
  places() {
    Object.assign(this, tallOf(this.drawn));
    const ranks = this.drawn.lines.map(([rank]) => rank);
    this.labels = ranks.map((rank, at) => (rank === ranks[at - 1] ? null : rank));
  }

  controls() {
    const buttons = this.table.rows.map((row, at) => {
      const step = row[place(this.table, 'step')];
      const what = `${row[0][0].toUpperCase()}${row[0].slice(1)}`;
      const words = step === null ? what : `${what}: step ${shown(step, 'count')}`;
      return make('button', { type: 'button', class: 'view', onclick: () => this.choose(at) }, words);
    });
    this.buttons = buttons;
    const search = this.field = make('input', { type: 'search', autocomplete: 'off', spellcheck: 'false', placeholder: 'name' });
    search.addEventListener('input', () => this.search(search.value));
    search.addEventListener('keydown', (event) => event.key === 'Enter' && this.next());
    const keys = [['Communication', 'communication'], ['Copies', 'copy']].filter(([, kind]) => this.drawn.kinds.includes(kind));
    const legend = keys.map(([words, kind]) => {
      const swatch = make('span', { class: 'swatch' });
      swatch.style.background = kindColour(kind);
      return make('li', {}, swatch, words);
    });
    return make('div', { class: 'controls' }, ...buttons, make('label', {}, 'Search ', search),
      make('ul', { class: 'legend' }, ...legend), this.told);
  }

  choose(row, draw = true) {
    const [begin, end] = this.begins[row];
    const around = this.table.rows[row][place(this.table, 'step')] === null ? 0 : 0.15 * (end - begin);
    this.look(begin - around, end + around, draw);
  }

  // From one moment to another.
  look(from, to, draw = true) {
    const most = this.drawn.end * 1.02, wide = Math.min(most, Math.max(CLOSEST, to - from));
    this.from = Math.min(most - wide, Math.max(-0.01 * this.drawn.end, from));
    this.to = this.from + wide;
    this.canvas.dataset.view = `${Math.round(this.from)} ${Math.round(this.to)}`;
    if (draw) this.soon();
  }

  get view() { return [this.from, this.to, this.field.value]; }

  set view([from, to, words]) {
    this.look(from, to);
    if (words) this.ready.then(() => this.search(this.field.value = words));
  }

  soon() {
    this.asked ??= requestAnimationFrame(() => { this.asked = null; this.draw(); });
  }

  // ---------------------------------------------------------------- drawing
  draw() {
    const { measured, cut } = (this.measuredLabels ??= measureTexts(this.labels.map((one) => one ?? ''), 110));
    const width = Math.max(280, this.host.clientWidth || 600), height = this.height + TOP + BOTTOM;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.left = measured + 10;
    this.width = width - this.left - RIGHT;
    this.canvas.dataset.place = `${this.left} ${this.width}`;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    }
    const context = this.canvas.getContext('2d', { willReadFrequently: true }); // pixels are put in by hand
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (this.levels) this.blocks(context, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.axes(context, cut);
    if (this.drag) {
      context.fillStyle = 'rgba(10, 88, 181, 0.2)';
      context.fillRect(Math.min(...this.drag), TOP, Math.abs(this.drag[1] - this.drag[0]), this.height);
    }
  }

  // Which level stands for which stretch of what is in view: a finer one where the first would show its blocks.
  stretches() {
    const [whole, ...finer] = this.levels;
    const pixel = (this.to - this.from) / this.width;
    const inside = whole.resolution > pixel ? finer.filter((level) => level.from < this.to && level.to > this.from) : [];
    const found = [];
    let at = this.from;
    for (const level of inside) {
      if (level.from > at) found.push([at, level.from, whole]);
      found.push([Math.max(at, level.from), Math.min(this.to, level.to), level]);
      at = level.to;
    }
    if (at < this.to) found.push([at, this.to, whole]);
    return found;
  }

  blocks(context, ratio) {
    const wide = Math.max(1, Math.round(this.width * ratio)), tall = Math.round(this.height * ratio);
    const image = context.createImageData(wide, tall);
    const pixels = new Uint32Array(image.data.buffer);
    const scale = wide / (this.to - this.from);
    this.named = [];
    for (const [from, to, level] of this.stretches()) {
      const low = Math.max(0, Math.round((from - this.from) * scale)), high = Math.min(wide, Math.round((to - this.from) * scale));
      this.drawn.lines.forEach((_, line) => this.line(pixels, wide, level, line, low, high, scale, ratio));
    }
    context.putImageData(image, Math.round(this.left * ratio), Math.round(TOP * ratio));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    Object.assign(context, { font: '11px system-ui, sans-serif', textAlign: 'left', textBaseline: 'middle' });
    for (const [x, y, room, line, name] of this.named) {
      context.fillStyle = this.isSteps[line] ? '#111111' : this.inks[name];
      const { cut } = measureTexts([this.nameOf(line, name)], room - 8);
      if (cut[0].length > 2) context.fillText(cut[0], this.left + x + 4, TOP + y);
    }
  }

  // The blocks of one line; those of less than a pixel share it, the longest gives the colour.
  line(pixels, wide, level, line, low, high, scale, ratio) {
    const { start, end, name, count, share } = level, steps = this.isSteps[line];
    const from = this.from + low / scale, to = this.from + high / scale;
    const top = Math.round(this.tops[line] * ratio), thick = Math.max(1, Math.round(this.thick * ratio) - 1);
    let at = firstAfter(level, line, from), last = -1, longest = 0;
    const limit = level.first[line + 1];
    for (; at < limit && start[at] < to; at += 1) {
      let x = Math.round((start[at] - this.from) * scale), right = Math.round((end[at] - this.from) * scale);
      if (x < low) x = low;
      if (right <= x) right = x + 1;
      if (right > high) right = high;
      const length = end[at] - start[at];
      if (right - x === 1 && x === last && length <= longest) continue;
      if (x !== last) longest = 0;
      if (right - x === 1) { last = x; longest = Math.max(longest, length); }
      let colour = steps ? STEP : this.colours[name[at]];
      if (this.found && !this.isFound(line, name[at])) colour = FADED;
      // what is not filled is drawn lower
      const empty = count[at] > 1 ? thick - Math.max(1, Math.round((thick * Math.max(60, share[at])) / 255)) : 0;
      for (let y = 0, first = top * wide + x; y < thick; y += 1, first += wide) {
        const paint = y < empty ? 0 : colour;
        if (right - x === 1) pixels[first] = paint; // most blocks by far
        else pixels.fill(paint, first, first + right - x);
      }
      const room = (right - x) / ratio;
      if (count[at] === 1 && right - x > 2) { // tells neighbours apart
        const edge = right - 1;
        for (let y = top; y < top + thick; y += 1) pixels[y * wide + edge] = 0;
      }
      if (room >= LEAST_LABEL && this.thick >= 12) this.named.push([x / ratio, this.tops[line] + this.thick / 2, room, line, name[at]]);
    }
  }

  // A step has its number in place of a name.
  nameOf(line, name) {
    return this.isSteps[line] ? `step ${name}` : this.drawn.names[name];
  }

  isFound(line, name) {
    return this.isSteps[line] ? `step ${name}` === this.wanted : this.found[name];
  }

  axes(context, labels) {
    Object.assign(context, { font: FONT, fillStyle: colourOf('--ink'), strokeStyle: colourOf('--line'), textBaseline: 'middle', textAlign: 'right' });
    let low = -Infinity;
    labels.forEach((label, line) => {
      const y = TOP + this.tops[line] + Math.max(6, this.thick / 2);
      if (!label || y < low + 13) return;
      context.fillText(label, this.left - 6, y);
      low = y;
    });
    const unit = axisUnit('ns', this.to - this.from), most = Math.max(2, Math.floor(this.width / 90));
    const step = roundStep((this.to - this.from) / most / unit.scale) * unit.scale;
    // ticks since the left end where they would have too many digits
    const origin = Math.abs(this.from) > 1e4 * step ? Math.ceil(this.from / step) * step : 0;
    Object.assign(context, { textAlign: 'center', textBaseline: 'top' });
    for (let tick = Math.ceil(this.from / step) * step; tick <= this.to; tick += step) {
      const x = this.left + ((tick - this.from) / (this.to - this.from)) * this.width;
      context.fillRect(x, TOP + this.height, 1, 4);
      const text = tickText(Number(((tick - origin) / unit.scale).toPrecision(9)));
      const half = context.measureText(text).width / 2;
      if (x - half >= 0 && x + half <= this.left + this.width + RIGHT) context.fillText(text, x, TOP + this.height + 6);
    }
    Object.assign(context, { textAlign: 'left', textBaseline: 'bottom' });
    const since = origin ? `time since ${timeText(origin)}` : this.chart.value_axis;
    context.fillText(`${since}, ${unit.name}`, this.left, TOP + this.height + BOTTOM - 1);
  }

  // ---------------------------------------------------------------- pointing, keys and search
  listen() {
    const { canvas } = this;
    canvas.addEventListener('pointerdown', (event) => this.pressed(event));
    canvas.addEventListener('pointermove', (event) => this.moved(event));
    canvas.addEventListener('pointerup', (event) => this.released(event));
    canvas.addEventListener('pointercancel', () => { this.drag = null; this.soon(); });
    canvas.addEventListener('pointerleave', hideHover);
    canvas.addEventListener('blur', hideHover);
    canvas.addEventListener('dblclick', () => this.zoom(3));
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  time(x) {
    return this.from + ((x - this.left) / this.width) * (this.to - this.from);
  }

  x(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    return Math.min(this.left + this.width, Math.max(this.left, x));
  }

  // With Shift, or a finger: moves. Else chooses what to zoom to.
  pressed(event) {
    this.canvas.focus({ preventScroll: true });
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    hideHover();
    if (event.shiftKey || event.pointerType === 'touch') this.grabbed = [this.x(event), this.from, this.to];
    else this.drag = [this.x(event), this.x(event)];
  }

  moved(event) {
    if (this.grabbed) {
      const [x, from, to] = this.grabbed, by = ((x - this.x(event)) / this.width) * (to - from);
      this.look(from + by, to + by);
    } else if (this.drag) {
      this.drag[1] = this.x(event);
      this.soon();
    } else this.pointed(event);
  }

  released(event) {
    const [one, other] = this.drag ?? [0, 0];
    Object.assign(this, { drag: null, grabbed: null });
    if (Math.abs(other - one) > 3) this.look(this.time(Math.min(one, other)), this.time(Math.max(one, other)));
    else this.soon();
    this.pointed(event);
  }

  // The page scrolls past a timeline that was not clicked on.
  wheel(event) {
    const focused = document.activeElement === this.canvas || event.ctrlKey;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX / this.width);
    else if (focused) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(this.x(event)));
    else return;
    event.preventDefault();
  }

  move(share) {
    const by = share * (this.to - this.from);
    this.look(this.from + by, this.to + by);
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.look(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  key(event) {
    const act = {
      ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), '+': () => this.zoom(0.5), '=': () => this.zoom(0.5),
      '-': () => this.zoom(2), Home: () => this.look(0, this.drawn.end), ArrowDown: () => this.walk(1), ArrowUp: () => this.walk(-1),
      Escape: () => hideHover(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    if (!event.key.startsWith('Arrow')) tell(`From ${timeText(this.from)} to ${timeText(this.to)}.`);
  }

  levelAt(time) {
    return this.stretches().find(([from, to]) => time >= from && time <= to)?.[2];
  }

  pointed(event) {
    if (!this.levels) return;
    const y = event.clientY - this.canvas.getBoundingClientRect().top - TOP, time = this.time(this.x(event));
    const line = this.tops.findIndex((top) => y >= top && y < top + this.thick);
    const level = this.levelAt(time);
    if (line < 0 || !level) return hideHover();
    const near = (2 * (this.to - this.from)) / this.width;
    let at = firstAfter(level, line, time - near);
    const limit = level.first[line + 1];
    // of those under the pointer the nearest to it
    while (at + 1 < limit && level.end[at] < time && level.start[at + 1] <= time) at += 1;
    if (at >= limit || level.start[at] > time + near) return hideHover();
    this.at = [level, line, at];
    return this.hover(level, line, at, event.clientX, event.clientY);
  }

  hover(level, line, at, x, y, aloud = false) {
    const [rank, kind, track] = this.drawn.lines[line], count = level.count[at];
    const length = level.end[at] - level.start[at];
    const lines = count === 1
      ? [['Duration', timeText(length), null]]
      : [['Events', count.toLocaleString('en'), null], ['From first to last', timeText(length), null], ['Busy', `${Math.round(level.share[at] / 2.55)} %`, null]];
    lines.push(['Begins at', timeText(level.start[at]), null], [rank, kind === 'parts' ? 'in the order of the loop' : track, null]);
    const name = this.nameOf(line, level.name[at]);
    showHover(count === 1 ? name : `mostly ${name}`, lines, x, y, aloud);
  }

  // Along the line that was pointed at last, or the first of steps.
  walk(by) {
    if (!this.levels) return;
    const line = this.at?.[1] ?? Math.max(0, this.isSteps.indexOf(true)), level = this.levelAt((this.from + this.to) / 2) ?? this.levels[0];
    const known = this.at?.[0] === level ? this.at[2] + by : firstAfter(level, line, this.from);
    const at = Math.min(level.first[line + 1] - 1, Math.max(level.first[line], known));
    this.at = [level, line, at];
    if (level.start[at] < this.from || level.end[at] > this.to) this.look(level.start[at] - (this.to - this.from) / 4, level.start[at] + ((this.to - this.from) * 3) / 4);
    const box = this.canvas.getBoundingClientRect();
    const x = this.left + ((level.start[at] - this.from) / (this.to - this.from)) * this.width;
    this.hover(level, line, at, box.left + x, box.top + TOP + this.tops[line], true);
  }

  search(words) {
    this.wanted = words.trim().toLowerCase();
    this.found = this.wanted ? this.drawn.names.map((name) => name.toLowerCase().includes(this.wanted)) : null;
    const blocks = this.matches().length;
    this.told.textContent = !this.wanted ? '' : blocks ? `${blocks.toLocaleString('en')} blocks; Enter goes to the next` : 'No such name';
    this.soon();
  }

  // [middle, length, line, name] of every block that is searched for.
  matches() {
    const made = [];
    if (!this.found || !this.levels) return made;
    for (const level of this.levels) {
      this.drawn.lines.forEach(([, kind], line) => {
        if (kind === 'path') return; // the same once more
        for (let at = level.first[line]; at < level.first[line + 1]; at += 1) {
          if (this.isFound(line, level.name[at])) made.push([(level.start[at] + level.end[at]) / 2, level.end[at] - level.start[at], line, level.name[at]]);
        }
      });
    }
    return made;
  }

  // To the first one after the middle of what is in view, or the first of all.
  next() {
    const middle = (this.from + this.to) / 2 + 1;
    const earliest = (found) => found.reduce((best, one) => (!best || one[0] < best[0] ? one : best), null);
    const all = this.matches(), best = earliest(all.filter(([at]) => at > middle)) ?? earliest(all);
    if (!best) return;
    const wide = Math.max(this.to - this.from, 4 * best[1]);
    this.look(best[0] - wide / 2, best[0] + wide / 2);
    tell(`${this.nameOf(best[2], best[3])} at ${timeText(best[0])}.`);
  }
}

const FADED = packed('#b8bec4', 0x60), STEP = packed('#bfc5cb');

// Text that can be read on a colour.
function inkOn(colour) {
  const [r, g, b] = colour.match(/\w\w/g).map((pair) => parseInt(pair, 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 110 ? '#111111' : '#ffffff';
}

function tallOf(drawn) {
  const thick = Math.min(THICK, Math.max(THIN, Math.floor(TALLEST / Math.max(1, drawn.lines.length))));
  const gap = thick > 6 ? GAP : 1, tops = [];
  let at = 0;
  drawn.lines.forEach(([rank], line) => {
    if (line && rank !== drawn.lines[line - 1][0]) at += gap;
    tops.push(at);
    at += thick;
  });
  return { thick, tops, height: at };
}

// As the pixels of a canvas hold it.
function packed(colour, alpha = 255) {
  const [r, g, b] = colour.match(/\w\w/g).map((pair) => parseInt(pair, 16));
  return (little ? (alpha << 24) | (b << 16) | (g << 8) | r : (r << 24) | (g << 16) | (b << 8) | alpha) >>> 0;
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((factor) => factor * power >= least) * power;
}
