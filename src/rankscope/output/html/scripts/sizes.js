// Stacked bars by size: one picture for each part, a bar for each size, a colour for each operation.
import { make } from './elements.js';
import { compare, place } from './data.js';
import { Bars } from './bars.js';
import { shown } from './numbers.js';

const MOST_SERIES = 8;

export class Sizes {
  constructor(chart, table, host) {
    const names = seriesOf(chart, table);
    const titles = chart.parts.map((part) => table.columns[place(table, part)].title);
    // all of them before the first is drawn: how wide each is depends on how many there are
    const hosts = titles.map(() => make('div'));
    const cells = titles.map((title, at) => make('div', { class: 'small' }, make('h3', { class: 'part' }, title), hosts[at]));
    host.replaceChildren(...cells);
    this.bars = chart.parts.map((part, at) => {
      const title = titles[at];
      const own = { ...chart, title: `${chart.title} (${title})`, parts: names, orders: [], named: true, value_axis: title.toLowerCase() };
      return new Bars(own, pivot(chart, table, part, names), hosts[at]);
    });
  }

  get view() {
    return this.bars.map((bars) => bars.view);
  }

  set view(views) {
    this.bars.forEach((bars, at) => { if (views[at]) bars.view = views[at]; });
  }

  draw() {
    this.bars.forEach((bars) => bars.draw());
  }

  static height(chart, table) {
    const sizes = new Set(table.rows.map((row) => row[place(table, chart.label)])).size;
    return 110 + Bars.height(chart, { rows: { length: sizes } });
  }
}

// The operations by the first part, so that each has the same colour in all pictures.
function seriesOf(chart, table) {
  const [series, value] = [chart.series, chart.parts[0]].map((name) => place(table, name));
  const totals = new Map();
  for (const row of table.rows) totals.set(row[series], (totals.get(row[series]) ?? 0) + (row[value] ?? 0));
  const names = [...totals.keys()].sort((one, other) => totals.get(other) - totals.get(one));
  return names.length > MOST_SERIES ? [...names.slice(0, MOST_SERIES - 1), 'all others'] : names;
}

// How many operations each of the names stands for, over all sizes; the last for all that are not kept.
function countsOf(chart, table, kept) {
  const [series, count] = [chart.series, chart.count].map((name) => place(table, name));
  if (count < 0) return null;
  const sums = kept.map(() => 0);
  for (const row of table.rows) {
    const at = kept.indexOf(row[series]);
    sums[at < 0 ? kept.length - 1 : at] += row[count] ?? 0;
  }
  return sums;
}

// Rows by size, a column for each operation; the operations that matter least share one.
function pivot(chart, table, part, kept) {
  const [size, series, value] = [chart.label, chart.series, part].map((name) => place(table, name));
  const sizes = [...new Set(table.rows.map((row) => row[size]))].sort(compare);
  const rows = sizes.map((bytes) => [bytes, ...kept.map(() => 0)]);
  for (const row of table.rows) {
    const at = kept.indexOf(row[series]);
    rows[sizes.indexOf(row[size])][1 + (at < 0 ? kept.length - 1 : at)] += row[value] ?? 0;
  }
  const { unit } = table.columns[value];
  const counts = countsOf(chart, table, kept);
  const legend = (name, at) => (counts ? `${name} (${shown(counts[at], 'count')})` : String(name));
  const columns = [table.columns[size], ...kept.map((name, at) => ({ name, title: String(name), legend: legend(name, at), unit, shown: true }))];
  return { name: table.name, title: table.title, columns, rows };
}
