// The largest of a table as a list of bars; follows the table's filter and order.
import { make } from './elements.js';
import { place } from './data.js';
import { shown } from './numbers.js';

const MOST = 15;

export class Top {
  constructor(chart, table, host, view) {
    Object.assign(this, { chart, table });
    this.list = make('ol', { class: 'toplist', 'aria-label': chart.title });
    host.replaceChildren(this.list);
    this.show(table.rows);
    view?.watchers.push((rows) => this.show(rows));
  }

  show(rows) {
    const label = place(this.table, this.chart.label), part = place(this.table, this.chart.parts[0]);
    const largest = this.table.rows.reduce((most, row) => Math.max(most, row[part] ?? 0), 0) || 1;
    const { unit } = this.table.columns[part];
    this.list.replaceChildren(...rows.slice(0, MOST).map((row) => {
      const bar = make('span', { class: 'bar', 'aria-hidden': 'true' });
      bar.style.width = `${Math.max(0.2, (100 * (row[part] ?? 0)) / largest)}%`;
      const name = shown(row[label], this.table.columns[label].unit);
      const words = make('span', { class: 'words', title: name }, name);
      return make('li', {}, words, make('span', { class: 'track' }, bar), make('b', {}, shown(row[part], unit)));
    }));
  }

  draw() {}

  static height(chart, table) {
    return 16 + 22 * Math.min(MOST, table.rows.length);
  }
}
