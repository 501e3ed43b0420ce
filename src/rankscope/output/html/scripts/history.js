// A figure of runs in the order of their start: a dot for each, a line for each level, an upright where it changes.
import { chooser, colourOf, make } from './elements.js';
import { place } from './data.js';
import { axisUnit, shown, tickText } from './numbers.js';
import { hideHover, showHover } from './hover.js';
import { increments, measureTexts } from './bars.js';

const TALL = 260, FONT = '12px system-ui, sans-serif';
const SPIKE = 4; // times the level: runs beyond are drawn at the edge
const DOT = '#56B4E9', LEVEL = '#0072B2', WORSE = '#D55E00', BETTER = '#009E73';

export class History {
  // parts: the figure and its level
  constructor(chart, table, host) {
    Object.assign(this, { chart, table, host });
    this.at = Object.fromEntries(table.columns.map((column) => [column.name, place(table, column.name)]));
    [this.value, this.level] = chart.parts.map((name) => this.at[name]);
    this.names = [...new Set(table.rows.map((row) => row[this.at[chart.series]]))];
    this.caption = host.parentElement.querySelector('figcaption');
    this.canvas = make('div', { class: 'canvas', tabindex: '0', role: 'img' });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('mouseleave', hideHover);
    this.canvas.addEventListener('blur', hideHover);
    this.controls = make('div', { class: 'controls' });
    host.replaceChildren(this.controls, this.canvas);
    this.choose(this.names[0], true);
  }

  static height() {
    return TALL + 40;
  }

  get view() {
    return this.name;
  }

  set view(name) {
    if (this.names.includes(name)) this.choose(name);
  }

  choose(name, isFirst = false) {
    this.name = name;
    this.row = undefined;
    this.rows = this.table.rows.filter((row) => row[this.at[this.chart.series]] === name);
    const select = chooser('Series', this.names.map((one) => [one, one]), name, (value) => this.choose(value));
    this.controls.replaceChildren(this.legend(), ...(this.names.length > 1 ? [select] : []));
    if (!isFirst) this.caption.textContent = `${this.table.columns[this.value].title} of ${name} over ${this.rows.length} runs`;
    this.canvas.setAttribute('aria-label', `${this.caption.textContent}. Arrow keys move from run to run. The table below has the numbers.`);
    this.draw();
  }

  legend() {
    const entry = (colour, words) => {
      const swatch = make('span', { class: 'swatch' });
      swatch.style.background = colour;
      return make('li', {}, swatch, words);
    };
    return make('ul', { class: 'legend' }, entry(DOT, 'run'), entry(LEVEL, 'level (median)'), entry(WORSE, 'became slower'), entry(BETTER, 'became faster'));
  }

  draw() {
    this.plot?.destroy();
    const values = this.rows.map((row) => row[this.value]), levels = this.rows.map((row) => row[this.level]);
    const top = SPIKE * Math.max(...levels);
    const drawn = values.map((value) => Math.min(value, top));
    this.largest = Math.max(...drawn);
    this.changes = levels.flatMap((level, at) => (at && level !== levels[at - 1] ? [[at, level > levels[at - 1]]] : []));
    this.plot = new uPlot(this.options(), [this.rows.map((_, at) => at), drawn, levels], this.canvas);
  }

  options() {
    const unit = axisUnit(this.table.columns[this.value].unit, this.largest);
    const axis = { font: FONT, labelFont: FONT, stroke: colourOf('--ink'), grid: { stroke: colourOf('--line'), width: 1 }, ticks: { show: false } };
    const { measured } = measureTexts([tickText(this.largest / unit.scale), '0.00'], 80);
    const placeOf = (at) => this.rows[at]?.[this.at.place];
    return {
      width: Math.max(280, this.canvas.clientWidth || 600), height: TALL, padding: [8, 16, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, range: [-0.5, Math.max(1, this.rows.length - 0.5)] }, y: { range: [0, this.largest * 1.05] } },
      axes: [
        { ...axis, label: `${this.chart.row_axis} of the series, oldest first`, labelSize: 18, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500], values: (_, splits) => splits.map((at) => placeOf(at) ?? '') },
        { ...axis, label: `${this.chart.value_axis}, ${unit.name}`, labelSize: 18, size: measured + 14, incrs: increments(unit.scale, this.largest), values: (_, splits) => splits.map((value) => tickText(value / unit.scale)) },
      ],
      series: [
        {}, { paths: () => null, points: { show: true, size: this.rows.length > 300 ? 4 : 6, fill: DOT, stroke: DOT, width: 0 } },
        { points: { show: false }, stroke: LEVEL, width: 2, paths: uPlot.paths.stepped({ align: 1 }) },
      ],
      hooks: {
        draw: [(plot) => this.uprights(plot)],
        setCursor: [(plot) => this.hover(plot.cursor.idx, plot.cursor)],
      },
    };
  }

  uprights(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const [at, isWorse] of this.changes) {
      const x = Math.round(plot.valToPos(at, 'x', true));
      ctx.strokeStyle = isWorse ? WORSE : BETTER;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  hover(row, cursor, aloud = false) {
    if (row === null || row === undefined || cursor.left < 0) return hideHover();
    const cell = (name) => this.rows[row][this.at[name]];
    const told = ['started', 'commit', 'hosts'].map((name) => [this.table.columns[this.at[name]].title, shown(cell(name), 'name'), null]);
    const { unit } = this.table.columns[this.value];
    const figures = [['Step', shown(this.rows[row][this.value], unit), DOT], ['Level', shown(this.rows[row][this.level], unit), LEVEL]];
    const box = this.plot.over.getBoundingClientRect();
    return showHover(shown(cell(this.chart.label), 'name'), [...figures, ...told], box.left + cursor.left, box.top + 20, aloud);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === 'Escape') hideHover();
    if (!step) return;
    event.preventDefault();
    this.row = Math.min(this.rows.length - 1, Math.max(0, this.row === undefined ? 0 : this.row + step));
    this.hover(this.row, { left: this.plot.valToPos(this.row, 'x') }, true);
  }
}
