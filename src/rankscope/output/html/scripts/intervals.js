// Changes with their intervals: a mark for each row on a common scale around nothing.
import { make } from './elements.js';
import { place } from './data.js';
import { shown } from './numbers.js';

const MOST = 24;
const WIDEST = 1; // twice as much, or nothing: what lies beyond is drawn at the edge

export class Intervals {
  // parts: change, the ends of its interval, and the verdict, which says the colour
  constructor(chart, table, host, view) {
    Object.assign(this, { chart, table });
    this.list = make('ol', { class: 'intervals', 'aria-label': chart.title });
    host.replaceChildren(this.list);
    this.show(table.rows);
    view?.watchers.push((rows) => this.show(rows));
  }

  show(rows) {
    const { table, chart } = this;
    const label = place(table, chart.label);
    const [change, low, high, verdict, before, after] = chart.parts.map((name) => place(table, name));
    const few = rows.slice(0, MOST);
    const ends = few.flatMap((row) => [row[change], row[low], row[high]]).filter((value) => value !== null);
    const largest = Math.min(WIDEST, ends.reduce((most, value) => Math.max(most, Math.abs(value)), 0.01));
    const x = (value) => 50 + (50 * Math.max(-largest, Math.min(largest, value))) / largest;
    const signed = (value) => `${value > 0 ? '+' : ''}${Math.abs(value) < 1 ? shown(value, 'share') : `${(100 * value).toFixed(0)} %`}`;
    this.list.replaceChildren(...few.map((row) => {
      const track = make('span', { class: 'track', 'aria-hidden': 'true' }, make('i', { class: 'zero' }));
      if (row[low] !== null) {
        const range = make('i', { class: 'range' });
        Object.assign(range.style, { left: `${x(row[low])}%`, width: `${Math.max(0.4, x(row[high]) - x(row[low]))}%` });
        track.append(range);
      }
      const mark = make('i', { class: 'mark' });
      if (row[change] !== null) {
        mark.style.left = `${x(row[change])}%`;
        track.append(mark);
      }
      const name = shown(row[label], 'name'), { unit } = table.columns[before];
      const ends = row[low] === null ? '' : ` (${signed(row[low])} … ${signed(row[high])})`;
      const told = `${row[change] === null ? '' : signed(row[change])}${ends}`;
      const sides = `${shown(row[before], unit)} → ${shown(row[after], unit)}`;
      return make('li', { class: String(row[verdict]).replace(' ', '-'), title: `${name}: ${sides}, ${row[verdict]}` },
        make('span', { class: 'words' }, name), track, make('span', { class: 'sides' }, sides), make('b', {}, told));
    }));
  }

  draw() {}

  static height(chart, table) {
    return 16 + 24 * Math.min(MOST, table.rows.length);
  }
}
