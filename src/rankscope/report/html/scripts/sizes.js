// Stacked bars by size: one picture for each part, a bar for each size, a colour for each operation.
import { make } from './elements.js';
import { compare, place } from './data.js';
import { Bars } from './bars.js';

const MOST_SERIES = 8;

export class Sizes {
  constructor(chart, table, host) {
    this.pictures = chart.parts.map((part) => {
      const column = table.columns[place(table, part)];
      const inner = make('div', { class: 'half' });
      host.append(make('div', { class: 'small' }, make('h4', {}, column.title), inner));
      const pivoted = pivot(chart, table, part);
      const names = pivoted.columns.slice(1).map((one) => one.name);
      const title = `${chart.title} (${column.title})`;
      return [inner, { ...chart, kind: 'bars', title, parts: names, orders: [], value_axis: column.title.toLowerCase() }, pivoted];
    });
    this.bars = this.pictures.map(([inner, own, pivoted]) => new Bars(own, pivoted, inner));
  }

  draw() {
    this.bars.forEach((bars) => bars.draw());
  }
}

// Rows by size, a column for each operation; the operations that matter least share one.
function pivot(chart, table, part) {
  const [size, series, value] = [chart.label, chart.series, part].map((name) => place(table, name));
  const totals = new Map();
  for (const row of table.rows) totals.set(row[series], (totals.get(row[series]) ?? 0) + (row[value] ?? 0));
  const names = [...totals.keys()].sort((one, other) => totals.get(other) - totals.get(one));
  const kept = names.length > MOST_SERIES ? [...names.slice(0, MOST_SERIES - 1), 'all others'] : names;
  const sizes = [...new Set(table.rows.map((row) => row[size]))].sort(compare);
  const rows = sizes.map((bytes) => [bytes, ...kept.map(() => 0)]);
  for (const row of table.rows) {
    const at = kept.indexOf(row[series]);
    rows[sizes.indexOf(row[size])][1 + (at < 0 ? kept.length - 1 : at)] += row[value] ?? 0;
  }
  const { unit } = table.columns[value];
  const columns = [table.columns[size], ...kept.map((name) => ({ name, title: String(name), unit, shown: true }))];
  return { name: table.name, title: table.title, columns, rows };
}
