// What contains what: the width of a box is its size, the boxes below it are its parts. A click makes one the whole.
import { chooser, colourOf, make } from './elements.js';
import { place } from './data.js';
import { shown } from './numbers.js';
import { hideHover, showHover } from './hover.js';
import { measureTexts } from './bars.js';

const TALL = 20, DEEPEST = 24, FONT = '12px system-ui, sans-serif';
const FILLS = ['#56B4E9', '#A5D5F3']; // only to tell neighbours apart

export class Icicle {
  // The table has the columns id and parent beside the label; parts are [total, own] for each thing that is measured.
  constructor(chart, table, host) {
    Object.assign(this, { chart, table, host });
    this.measures = [];
    for (let at = 0; at < chart.parts.length; at += 2) this.measures.push(chart.parts.slice(at, at + 2).map((name) => place(table, name)));
    this.measure = 0;
    this.nodes = this.tree();
    this.whole = this.nodes.root;
    this.canvas = make('canvas', { tabindex: '0', role: 'img', 'aria-label': `${chart.title}. The table below has the numbers.` });
    this.canvas.addEventListener('mousemove', (event) => this.pointed(event));
    this.canvas.addEventListener('mouseleave', hideHover);
    this.canvas.addEventListener('click', (event) => this.zoom(this.under(event)?.node));
    this.canvas.addEventListener('keydown', (event) => event.key === 'Escape' && this.zoom(this.nodes.root));
    this.path = make('p', { class: 'path' });
    host.replaceChildren(this.controls(), this.path, this.canvas);
    this.draw();
  }

  static height() {
    return 240;
  }

  tree() {
    const [id, parent, label] = ['id', 'parent', this.chart.label].map((name) => place(this.table, name));
    const byId = new Map(this.table.rows.map((row) => [row[id], { row, name: String(row[label]), children: [] }]));
    const root = { row: null, name: 'all', children: [] };
    for (const node of byId.values()) {
      node.parent = byId.get(node.row[parent]) ?? root;
      node.parent.children.push(node);
    }
    return { root };
  }

  size(node) {
    const [total] = this.measures[this.measure];
    return node.row ? Math.max(0, node.row[total] ?? 0) : node.children.reduce((sum, child) => sum + this.size(child), 0);
  }

  controls() {
    this.scale = make('span');
    const options = this.measures.map(([total], at) => [String(at), this.table.columns[total].title]);
    const changed = (at) => { this.measure = Number(at); this.draw(); };
    return make('div', { class: 'controls' }, ...(options.length > 1 ? [chooser('Width is', options, '0', changed)] : []), this.scale);
  }

  get view() {
    const names = [];
    for (let node = this.whole; node.parent; node = node.parent) names.unshift(node.name);
    return [names, this.measure];
  }

  set view([names, measure]) {
    this.host.querySelector('select')?.setAttribute('value', measure);
    this.measure = measure;
    this.zoom(names.reduce((node, name) => node.children.find((child) => child.name === name) ?? node, this.nodes.root));
  }

  zoom(node) {
    if (!node) return;
    this.whole = node;
    this.draw();
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, width = Math.max(280, this.host.clientWidth || 600);
    this.boxes = [];
    this.lay(this.whole, 0, width, 0);
    const height = TALL * (1 + this.boxes.reduce((most, box) => Math.max(most, box.depth), 0));
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const context = this.canvas.getContext('2d');
    context.scale(ratio, ratio);
    this.boxes.forEach((box, at) => this.paint(context, box, at));
    const { unit, title } = this.table.columns[this.measures[this.measure][0]];
    this.scale.textContent = `The whole width is ${shown(this.size(this.whole), unit)} (${title.toLowerCase()}).`;
    this.crumbs();
  }

  lay(node, left, width, depth) {
    if (width < 0.7 || depth > DEEPEST) return;
    this.boxes.push({ node, left, width, depth });
    const whole = this.size(node) || 1;
    let at = left;
    for (const child of [...node.children].sort((one, other) => this.size(other) - this.size(one))) {
      const part = (width * this.size(child)) / whole;
      this.lay(child, at, part, depth + 1);
      at += part;
    }
  }

  paint(context, { node, left, width, depth }, at) {
    context.fillStyle = depth ? FILLS[(depth + at) % FILLS.length] : colourOf('--line');
    context.fillRect(left, depth * TALL, Math.max(0.5, width - 1), TALL - 1);
    if (width < 36) return;
    Object.assign(context, { font: FONT, textBaseline: 'middle', fillStyle: depth ? '#111' : colourOf('--ink') });
    context.fillText(measureTexts([node.name], width - 8).cut[0], left + 4, depth * TALL + TALL / 2);
  }

  crumbs() {
    const way = [];
    for (let node = this.whole; node; node = node.parent) way.unshift(node);
    this.path.replaceChildren(...way.flatMap((node, at) => [
      ...(at ? [' › '] : []), make('button', { type: 'button', onclick: () => this.zoom(node) }, node.name),
    ]));
    this.path.hidden = way.length < 2;
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, depth = Math.floor((event.clientY - box.top) / TALL);
    return this.boxes.find((one) => one.depth === depth && x >= one.left && x < one.left + one.width);
  }

  pointed(event) {
    const found = this.under(event);
    if (!found?.node.row) return hideHover();
    const lines = this.measures.flat().map((at) => {
      const column = this.table.columns[at];
      return [column.title, shown(found.node.row[at], column.unit), null];
    });
    return showHover(found.node.name, lines, event.clientX, event.clientY);
  }
}
