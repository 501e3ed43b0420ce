// Stacked bars: a row of the table is a bar, its parts one after the other.
import { chooser, colourOf, make } from './elements.js';
import { ordered, place } from './data.js';
import { axisUnit, shown, tickText } from './numbers.js';
import { partColours } from './colours.js';
import { hideHover, showHover } from './hover.js';
import { onSteps } from './selection.js';

const THICK = 22, TALLEST = 560, TALLEST_FIRST = 330, FONT = '12px system-ui, sans-serif';
const LONGEST_LABEL = 200;

export class Bars {
  // groups: the same parts by group of steps, of which a selection is summed up
  constructor(chart, table, host, groups = null) {
    Object.assign(this, { chart, host, whole: table });
    this.order = chart.orders[0] ?? '';
    this.hidden = new Set(); // names of parts that are left out
    this.tallest = host.closest('.first') ? TALLEST_FIRST : TALLEST;
    this.canvas = make('div', { class: 'canvas', tabindex: '0', role: 'img' });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('mouseleave', hideHover);
    this.canvas.addEventListener('blur', hideHover);
    this.bar = make('div', { class: 'controls' });
    host.replaceChildren(this.bar, this.canvas);
    this.show(table, chart.parts);
    if (groups) onSteps((steps) => this.select(groups, steps));
  }

  // The same picture of another table.
  show(table, parts, about = '') {
    this.table = table;
    this.label = place(table, this.chart.label);
    this.parts = parts.map((name) => place(table, name));
    this.columns = this.parts.map((at) => table.columns[at]);
    this.colours = partColours(parts);
    this.unit = this.columns[0].unit;
    this.about = about;
    this.canvas.setAttribute('aria-label', this.spoken());
    this.bar.replaceChildren(...this.controls());
    this.draw();
  }

  // Only some steps: the mean over the groups of them, each counted as often as it has steps.
  select(groups, steps) {
    if (!steps) return this.show(this.whole, this.chart.parts);
    const [first, last, count] = ['first_step', 'last_step', 'steps'].map((name) => place(groups, name));
    const who = place(groups, this.chart.label);
    const parts = groups.columns.map((column, at) => at).filter((at) => at > count);
    const rows = new Map();
    for (const row of groups.rows) {
      if (row[first] < steps.first || row[last] > steps.last) continue;
      const sums = rows.get(row[who]) ?? [row[who], ...parts.map(() => 0), 0];
      parts.forEach((at, number) => { sums[1 + number] += row[at] * row[count]; });
      sums[parts.length + 1] += row[count];
      rows.set(row[who], sums);
    }
    const means = [...rows.values()].map((sums) => sums.map((sum, at) => (at ? sum / sums.at(-1) : sum)));
    const columns = [groups.columns[who], ...parts.map((at) => groups.columns[at])];
    if (!means.length) return null;
    return this.show({ name: groups.name, title: groups.title, columns, rows: means },
      columns.slice(1).map((column) => column.name), `Steps ${steps.first} to ${steps.last} only`);
  }

  // What the reader has made of it: kept when the page takes over newer numbers.
  get view() {
    return [[...this.hidden], this.order];
  }

  set view([hidden, order]) {
    Object.assign(this, { hidden: new Set(hidden), order });
    this.bar.replaceChildren(...this.controls());
    this.draw();
  }

  // About how tall it will be, so that nothing moves when it is drawn.
  static height(chart, table) {
    return Math.min(TALLEST, Math.max(2, table.rows.length) * THICK) + 56 + 38;
  }

  spoken() {
    const { title, row_axis: rows } = this.chart;
    return `${title}. Bars by ${rows || 'row'}, stacked: ${this.columns.map((one) => one.title).join(', ')}. ` +
      'Arrow keys move from bar to bar; the table below has the numbers.';
  }

  controls() {
    const legend = make('ul', { class: 'legend' });
    this.columns.forEach((column, at) => {
      const swatch = make('span', { class: 'swatch' });
      swatch.style.background = this.colours[at];
      const entry = make('button', { type: 'button', title: column.formula ?? false, 'aria-pressed': String(!this.hidden.has(column.name)) }, swatch, column.legend ?? column.title);
      entry.addEventListener('click', () => this.toggle(column.name, entry));
      legend.append(make('li', {}, entry));
    });
    const made = this.columns.length > 1 || this.chart.named ? [legend] : [];
    const orders = this.chart.orders.filter((name) => place(this.table, name) >= 0);
    if (orders.length > 1 && this.table.rows.length > 1) {
      const options = orders.map((name) => [name, this.table.columns[place(this.table, name)].title]);
      made.push(chooser('Order by', options, this.order, (name) => { this.order = name; this.draw(); }));
    }
    if (this.about) made.push(make('strong', {}, this.about));
    return made;
  }

  // Leaves a part out of the picture, or shows it again.
  toggle(name, entry) {
    if (this.hidden.has(name)) this.hidden.delete(name);
    else this.hidden.add(name);
    entry.setAttribute('aria-pressed', String(!this.hidden.has(name)));
    this.draw();
  }

  rows() {
    const at = place(this.table, this.order);
    if (at < 0 || this.order === this.chart.orders[0]) return this.table.rows;
    return ordered(this.table.rows, at, this.table.columns[at].unit !== 'name');
  }

  draw() {
    this.plot?.destroy();
    this.shownRows = this.rows();
    const sums = this.sums();
    this.largest = sums.at(-1).reduce((most, value) => Math.max(most, value), 0) || 1;
    this.plot = new uPlot(this.options(), [this.shownRows.map((_, at) => at), ...[...sums].reverse()], this.canvas);
  }

  // Up to and with each part; the largest sum is drawn first and the others over it.
  sums() {
    let below = this.shownRows.map(() => 0);
    const value = (row, at) => (this.hidden.has(this.table.columns[at].name) ? 0 : Math.max(0, row[at] ?? 0));
    return this.parts.map((at) => (below = this.shownRows.map((row, number) => below[number] + value(row, at))));
  }

  options() {
    const rows = this.shownRows.length;
    const unit = axisUnit(this.unit, this.largest);
    const title = measureTexts([this.chart.row_axis], this.tallest).measured + 8; // stands upright beside the bars
    const inner = Math.min(this.tallest, Math.max(rows * THICK, 2 * THICK, title));
    const bars = uPlot.paths.bars({ size: [rows > inner / 4 ? 1 : 0.8, THICK], gap: 0 });
    const fills = [...this.colours].reverse();
    return {
      width: Math.max(280, this.canvas.clientWidth || 600),
      height: inner + 56,
      padding: [8, 24, 0, 0],
      legend: { show: false },
      cursor: { x: true, y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
      select: { show: false },
      scales: {
        x: { time: false, ori: 1, dir: -1, range: [-0.5, rows - 0.5] },
        y: { ori: 0, range: [0, this.largest * 1.02] },
      },
      axes: [this.rowAxis(inner), this.valueAxis(unit)],
      series: [{}, ...fills.map((fill) => ({ fill, stroke: fill, width: 0, paths: bars, points: { show: false } }))],
      hooks: { setCursor: [(plot) => this.hover(plot.cursor.idx, plot.cursor)] },
    };
  }

  rowAxis(inner) {
    const rows = this.shownRows.length;
    const each = Math.max(1, Math.ceil((rows * 15) / inner));
    const splits = Array.from({ length: Math.ceil(rows / each) }, (_, at) => at * each);
    const texts = splits.map((at) => this.rowLabel(at));
    const { measured, cut } = measureTexts(texts, LONGEST_LABEL);
    return {
      side: 3, scale: 'x', splits: () => splits, values: () => cut, size: measured + 14,
      label: this.chart.row_axis, labelSize: this.chart.row_axis ? 20 : 0, labelFont: FONT, font: FONT,
      stroke: colourOf('--ink'), grid: { show: false }, ticks: { show: false },
    };
  }

  valueAxis(unit) {
    const name = [this.chart.value_axis, unit.name].filter(Boolean).join(', ');
    return {
      side: 2, scale: 'y', label: name, labelSize: 20, labelFont: FONT, font: FONT, size: 28, space: 70,
      incrs: increments(unit.scale, this.largest), values: (_, splits) => splits.map((value) => tickText(value / unit.scale)),
      stroke: colourOf('--ink'), grid: { stroke: colourOf('--line'), width: 1 }, ticks: { show: false },
    };
  }

  rowLabel(at) {
    const column = this.table.columns[this.label];
    return shown(this.shownRows[at][this.label], column.unit);
  }

  hover(at, cursor, aloud = false) {
    if (at === null || at === undefined || cursor.top < 0) return hideHover();
    const row = this.shownRows[at];
    const filled = this.columns.map((column, number) => [column.title, row[this.parts[number]], this.colours[number]]);
    const lines = filled.filter(([, value]) => value).map(([title, value, colour]) => [title, shown(value, this.unit), colour]);
    if (filled.length > 1) lines.push(['Sum', shown(filled.reduce((sum, one) => sum + (one[1] ?? 0), 0), this.unit), null]);
    const box = this.plot.over.getBoundingClientRect();
    const title = [this.chart.row_axis, this.rowLabel(at)].filter(Boolean).join(' ');
    return showHover(title, lines, box.left + Math.max(0, cursor.left), box.top + cursor.top, aloud);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (event.key === 'Escape') hideHover();
    if (!step) return;
    event.preventDefault();
    this.at = Math.min(this.shownRows.length - 1, Math.max(0, (this.at ?? (step > 0 ? -1 : 1)) + step));
    this.hover(this.at, { left: 40, top: this.plot.valToPos(this.at, 'x') }, true);
  }
}

// Ticks that are round in the unit that is told.
export function increments(scale, largest) {
  const found = [];
  for (let power = 1e-3; power * scale <= largest * 10; power *= 10) found.push(power * scale, 2 * power * scale, 5 * power * scale);
  return found;
}

const ruler = document.createElement('canvas').getContext('2d');

// How wide the widest of the texts is, and the texts cut to a width.
export function measureTexts(texts, most) {
  ruler.font = FONT;
  const width = (text) => ruler.measureText(text).width;
  const cut = texts.map((text) => {
    let kept = text;
    while (kept.length > 1 && width(kept) > most) kept = `${kept.slice(0, Math.max(1, kept.length * 0.9 - 1))}…`;
    return kept;
  });
  return { measured: Math.ceil(cut.reduce((widest, text) => Math.max(widest, width(text)), 0)), cut };
}
