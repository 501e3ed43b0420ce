// A grid of colours, drawn by hand: a row of the table is a row of cells, a part is a column.
import { colourOf, make } from './elements.js';
import { place } from './data.js';
import { shown } from './numbers.js';
import { heatColour } from './colours.js';
import { hideHover, showHover } from './hover.js';
import { measureTexts } from './bars.js';

const FONT = '12px system-ui, sans-serif', BOTTOM = 40, TOP = 6, RIGHT = 12, TITLE = 20;
const TALLEST = 420, THICK = 16, WIDE = 56;

export class Heat {
  constructor(chart, table, host) {
    Object.assign(this, { chart, table, host });
    this.label = place(table, chart.label);
    this.parts = chart.parts.map((name) => place(table, name));
    this.unit = table.columns[this.parts[0]].unit;
    this.largest = 0;
    for (const row of table.rows) for (const at of this.parts) this.largest = Math.max(this.largest, row[at] ?? 0);
    this.canvas = make('canvas', { tabindex: '0', role: 'img', 'aria-label': this.spoken() });
    this.canvas.addEventListener('mousemove', (event) => this.pointed(event));
    this.canvas.addEventListener('mouseleave', hideHover);
    this.canvas.addEventListener('blur', hideHover);
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    host.replaceChildren(this.scale(), this.canvas);
    this.image = this.cells();
    this.draw();
  }

  static height(chart, table) {
    return Math.min(TALLEST, table.rows.length * THICK) + TOP + BOTTOM + 38;
  }

  spoken() {
    return `${this.chart.title}. A grid of ${this.table.rows.length} rows and ${this.parts.length} columns, brighter is more. ` +
      'Arrow keys move from cell to cell; the table below has the numbers.';
  }

  // The colour of a value: small ones are told apart too, by the root.
  share(value) {
    return this.largest ? Math.sqrt(Math.max(0, value) / this.largest) : 0;
  }

  scale() {
    const bar = make('div', { class: 'scale', 'aria-hidden': 'true' });
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const swatch = make('span', { class: 'swatch' });
      swatch.style.background = `rgb(${heatColour(share)})`;
      bar.append(make('span', {}, swatch, shown(share * share * this.largest, this.unit)));
    }
    return make('div', { class: 'controls' }, bar);
  }

  // One pixel a cell, to be drawn larger.
  cells() {
    const { rows } = this.table;
    const made = make('canvas', { width: this.parts.length, height: rows.length });
    const context = made.getContext('2d');
    const image = context.createImageData(this.parts.length, rows.length);
    rows.forEach((row, y) => this.parts.forEach((at, x) => {
      if (row[at] !== null) image.data.set([...heatColour(this.share(row[at])), 255], 4 * (y * this.parts.length + x));
    }));
    context.putImageData(image, 0, 0);
    return made;
  }

  draw() {
    const { rows, columns } = this.table;
    const labels = rows.map((row) => shown(row[this.label], columns[this.label].unit));
    const { measured, cut } = measureTexts(labels, 140);
    const width = Math.max(280, this.host.clientWidth || 600);
    this.left = measured + 12 + TITLE;
    this.width = Math.min(width - this.left - RIGHT, this.parts.length * WIDE);
    this.height = Math.min(TALLEST, rows.length * THICK);
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: (this.height + TOP + BOTTOM) * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${this.height + TOP + BOTTOM}px` });
    const context = this.canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, this.left, TOP, this.width, this.height);
    this.axes(context, cut);
  }

  axes(context, labels) {
    Object.assign(context, { font: FONT, fillStyle: colourOf('--ink'), textBaseline: 'middle', textAlign: 'right' });
    const tall = this.height / labels.length;
    const each = Math.max(1, Math.ceil(15 / tall));
    for (let at = 0; at < labels.length; at += each) context.fillText(labels[at], this.left - 6, TOP + (at + 0.5) * tall);
    Object.assign(context, { textAlign: 'center', textBaseline: 'top' });
    const titles = this.parts.map((at) => this.table.columns[at].title);
    const wide = this.width / titles.length;
    const apart = measureTexts(titles, 120);
    const across = Math.max(1, Math.ceil((apart.measured + 16) / wide));
    for (let at = 0; at < titles.length; at += across) {
      if (at === 0 || this.left + (at + 0.5) * wide + apart.measured / 2 <= this.left + this.width + RIGHT) {
        context.fillText(apart.cut[at], this.left + (at + 0.5) * wide, TOP + this.height + 5);
      }
    }
    Object.assign(context, { textAlign: 'left', textBaseline: 'bottom' });
    context.fillText(this.chart.value_axis, this.left, TOP + this.height + BOTTOM - 1);
    context.translate(2, TOP + this.height);
    context.rotate(-Math.PI / 2);
    Object.assign(context, { textAlign: 'left', textBaseline: 'top' });
    context.fillText(this.chart.row_axis, 0, 0);
  }

  pointed(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left - this.left) / this.width) * this.parts.length);
    const y = Math.floor(((event.clientY - box.top - TOP) / this.height) * this.table.rows.length);
    const inside = x >= 0 && y >= 0 && x < this.parts.length && y < this.table.rows.length;
    return inside ? this.hover(x, y, event.clientX, event.clientY) : hideHover();
  }

  hover(x, y, clientX, clientY, aloud = false) {
    const row = this.table.rows[y], column = this.table.columns[this.parts[x]];
    const value = row[this.parts[x]];
    const title = `${this.chart.row_axis} ${shown(row[this.label], this.table.columns[this.label].unit)}`;
    const lines = [[`${this.chart.value_axis} ${column.title}`, value === null ? 'not known' : shown(value, this.unit), null]];
    showHover(title, lines, clientX, clientY, aloud);
  }

  key(event) {
    const [right, down] = { ArrowDown: [0, 1], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowLeft: [-1, 0] }[event.key] ?? [0, 0];
    if (event.key === 'Escape') hideHover();
    if (!right && !down) return;
    event.preventDefault();
    const [x, y] = this.at ?? [0, 0];
    const within = (value, size) => Math.min(size - 1, Math.max(0, value));
    this.at = this.at ? [within(x + right, this.parts.length), within(y + down, this.table.rows.length)] : [0, 0];
    const box = this.canvas.getBoundingClientRect();
    const left = box.left + this.left + ((this.at[0] + 0.5) * this.width) / this.parts.length;
    const top = box.top + TOP + ((this.at[1] + 0.5) * this.height) / this.table.rows.length;
    this.hover(...this.at, left, top, true);
  }
}
