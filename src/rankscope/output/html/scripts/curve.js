// A quantity over steps: a band from the least to the most of all ranks, or of the middle half of some steps, the median,
// and the run's percentiles. Where single steps are known a brush over it chooses steps for the whole page.
import { colourOf, make, tell } from './elements.js';
import { place } from './data.js';
import { axisUnit, shown, tickText } from './numbers.js';
import { hideHover, showHover } from './hover.js';
import { increments, measureTexts } from './bars.js';
import { chooseSteps, onSteps } from './selection.js';

const TALL = 220, FONT = '12px system-ui, sans-serif';
const SPIKE = 8; // times the usual step
// by the first of the columns that are drawn
const WORDS = {
  min_ns: { curve: 'median of the ranks', band: 'fastest to slowest', hover: ['Fastest', 'Median', 'Slowest'], rank: ['Slowest rank', 'slowest_rank'] },
  quarter_ns: { curve: 'median step', band: 'middle half of the steps', hover: ['p25', 'Median', 'p75'], rank: ['Longest own time on rank', 'longest_rank'] },
};
const CURVE = 'var(--link)', BAND = 'rgba(86, 180, 233, 0.35)', LINES = ['#009E73', '#D55E00'];

export class Curve {
  constructor(chart, table, host) {
    Object.assign(this, { chart, table, host });
    this.at = Object.fromEntries(table.columns.map((column) => [column.name, place(table, column.name)]));
    [this.low, this.middle, this.high] = chart.parts;
    this.words = WORDS[this.low];
    this.last = chart.label.replace('first', 'last');
    this.brushes = this.at.begin_ns !== undefined;
    this.chosen = null; // first and last row
    this.canvas = make('div', { class: 'canvas', tabindex: '0', role: 'img', 'aria-label': this.spoken() });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('mouseleave', hideHover);
    this.canvas.addEventListener('blur', hideHover);
    this.all = make('button', { type: 'button', hidden: true, onclick: () => chooseSteps(null) }, 'All steps');
    this.told = make('span', { class: 'count', role: 'status' });
    host.replaceChildren(make('div', { class: 'controls' }, this.legend(), this.all, this.told), this.canvas);
    this.draw();
    this.selected(null);
    onSteps((steps) => this.selected(steps));
  }

  static height() {
    return TALL + 40;
  }

  spoken() {
    const keys = this.brushes ? 'Arrow keys move along it, with Shift they choose steps for the whole page, Escape chooses all.' : 'Arrow keys move along it.';
    return `${this.chart.title}. A curve of ${this.table.rows.length} points. ${keys} The table below has the numbers.`;
  }

  legend() {
    const entry = (colour, words) => {
      const swatch = make('span', { class: 'swatch' });
      swatch.style.background = colour;
      return make('li', {}, swatch, words);
    };
    const lines = this.chart.lines.map(([name, value], number) => entry(LINES[number], `${name} ${shown(value, 'ns')}`));
    const least = this.column(this.low), most = this.column(this.high);
    const single = least.every((value, at) => value === most[at]); // one rank: there is no band
    const curve = single ? [entry(CURVE, 'step time')] : [entry(CURVE, this.words.curve), entry(BAND, this.words.band)];
    return make('ul', { class: 'legend' }, ...curve, ...lines);
  }

  column(name) {
    return this.table.rows.map((row) => row[this.at[name]]);
  }

  draw() {
    this.plot?.destroy();
    const steps = this.column(this.chart.label), most = this.column(this.high);
    const lines = this.chart.lines.map(([, value]) => steps.map(() => value));
    this.largest = most.reduce((sofar, value) => Math.max(sofar, value), 0) || 1;
    this.least = this.column(this.low).reduce((sofar, value) => Math.min(sofar, value), this.largest);
    // where a few steps are far longer than all others, nothing else would be seen of these
    this.log = this.least > 0 && this.largest > SPIKE * this.chart.lines[0][1];
    const data = [steps, this.column(this.low), most, this.column(this.middle), ...lines];
    this.plot = new uPlot(this.options(), data, this.canvas);
    this.mark();
  }

  options() {
    const unit = axisUnit('ns', this.largest);
    const axis = { font: FONT, labelFont: FONT, stroke: colourOf('--ink'), grid: { stroke: colourOf('--line'), width: 1 }, ticks: { show: false } };
    const { measured } = measureTexts([tickText(this.largest / unit.scale), '0.00'], 80);
    const plain = { points: { show: false } };
    return {
      width: Math.max(280, this.canvas.clientWidth || 600), height: TALL, padding: [8, 16, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: this.brushes, y: false, setScale: false } },
      scales: { x: { time: false }, y: this.log ? { distr: 3, range: [this.least * 0.8, this.largest * 1.25] } : { range: [0, this.largest * 1.05] } },
      axes: [
        { ...axis, label: this.chart.row_axis, labelSize: 18, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7], values: (_, splits) => splits.map(tickText) },
        { ...axis, label: `${this.chart.value_axis}, ${unit.name}${this.log ? ' (log)' : ''}`, labelSize: 18, size: measured + 14, ...(this.log ? { splits: () => roundBetween(this.least * 0.8, this.largest * 1.25), filter: (_, splits) => splits } : { incrs: increments(unit.scale, this.largest) }), values: (_, splits) => splits.map((value) => tickText(value / unit.scale)) },
      ],
      series: [
        {}, { ...plain, stroke: 'transparent' }, { ...plain, stroke: 'transparent' }, { ...plain, stroke: colourOf('--link'), width: 1.5 },
        ...this.chart.lines.map((_, number) => ({ ...plain, stroke: LINES[number], width: 1, dash: [5, 4] })),
      ],
      bands: [{ series: [2, 1], fill: BAND }],
      hooks: {
        setCursor: [(plot) => this.hover(plot.cursor.idx, plot.cursor)],
        setSelect: [(plot) => this.brushed(plot)],
      },
    };
  }

  brushed(plot) {
    if (!this.brushes || plot.select.width < 2) return;
    const [low, high] = [plot.select.left, plot.select.left + plot.select.width].map((x) => plot.posToIdx(x));
    this.choose(low, high);
  }

  choose(low, high) {
    const cell = (row, name) => this.table.rows[row][this.at[name]];
    const begins = [], ends = [];
    for (let row = low; row <= high; row += 1) begins.push(cell(row, 'begin_ns')), ends.push(cell(row, 'end_ns'));
    chooseSteps({ first: cell(low, 'first_step'), last: cell(high, 'last_step'), begin: Math.min(...begins), end: Math.max(...ends) });
  }

  selected(steps) {
    this.chosen = steps && [steps.first, steps.last];
    this.all.hidden = !steps || !this.brushes;
    this.told.textContent = steps ? `Steps ${steps.first} to ${steps.last}` : this.brushes ? 'Drag over the curve to choose steps for the whole page' : '';
    if (steps && this.brushes) tell(`Steps ${steps.first} to ${steps.last} chosen.`);
    this.mark();
  }

  mark() {
    if (!this.chosen) return this.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const steps = this.column(this.chart.label);
    const [left, right] = this.chosen.map((step) => this.plot.valToPos(Math.min(step, steps.at(-1)), 'x'));
    return this.plot.setSelect({ left, top: 0, width: Math.max(2, right - left), height: this.plot.over.clientHeight }, false);
  }

  hover(row, cursor, aloud = false) {
    if (row === null || row === undefined || cursor.left < 0) return hideHover();
    const cell = (name) => this.table.rows[row][this.at[name]];
    const [first, last] = [cell(this.chart.label), cell(this.last)];
    const [low, middle, high] = this.words.hover;
    const lines = [[middle, this.middle, CURVE], [low, this.low, null], [high, this.high, null]];
    const told = lines.map(([words, name, colour]) => [words, shown(cell(name), 'ns'), colour]);
    const box = this.plot.over.getBoundingClientRect();
    const title = first === last ? `Step ${first}` : `Steps ${first} to ${last}`;
    return showHover(title, [...told, [this.words.rank[0], String(cell(this.words.rank[1])), null]], box.left + cursor.left, box.top + 20, aloud);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === 'Escape') { hideHover(); chooseSteps(null); }
    if (!step) return;
    event.preventDefault();
    const from = this.row ?? 0;
    this.row = Math.min(this.table.rows.length - 1, Math.max(0, this.row === undefined ? 0 : this.row + step));
    if (event.shiftKey && this.brushes) {
      this.anchor ??= from;
      this.choose(Math.min(this.anchor, this.row), Math.max(this.anchor, this.row));
    } else this.anchor = undefined;
    this.hover(this.row, { left: this.plot.valToPos(this.table.rows[this.row][this.at[this.chart.label]], 'x') }, true);
  }
}

// 1, 2 and 5 times powers of ten; the powers alone where these are many.
function roundBetween(low, high) {
  const found = [], factors = high / low > 1000 ? [1] : [1, 2, 5];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) found.push(...factors.map((factor) => factor * power));
  return found.filter((value) => value >= low && value <= high);
}
