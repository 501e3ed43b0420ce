// A table that can be sorted, filtered and copied.
import { make } from './elements.js';
import { shown } from './numbers.js';
import { ordered } from './data.js';
import { copy, toCsv } from './csv.js';

const FIRST = 20; // rows that are shown unasked
const FILTERED_FROM = 8;
const LONG = 28; // letters of a text that may be broken into lines

export class TableView {
  constructor(table, host) {
    this.table = table;
    this.kept = table.columns.map((column, at) => at).filter((at) => table.columns[at].shown);
    this.texts = new Map(); // what a row is searched by
    this.sorted = null; // [place of the column, descending]
    this.words = '';
    this.all = table.rows.length <= FIRST;
    this.watchers = [];
    host.replaceChildren(this.controls(), this.grid(), this.more());
    this.fill();
  }

  static height(table) {
    return 74 + 27 * Math.min(FIRST, table.rows.length) + (table.rows.length > FIRST ? 36 : 0);
  }

  controls() {
    const bar = make('div', { class: 'controls' });
    if (this.table.rows.length >= FILTERED_FROM) {
      const search = this.field = make('input', { type: 'search', autocomplete: 'off', spellcheck: 'false' });
      search.addEventListener('input', () => this.filter(search.value));
      bar.append(make('label', {}, 'Filter ', search));
    }
    this.count = make('span', { class: 'count', role: 'status' });
    const label = `Copy ${this.table.title} as CSV`;
    const copied = () => copy(toCsv(this.table, this.rows()), `${this.rows().length} rows of ${this.table.title}`);
    bar.append(make('button', { type: 'button', class: 'copy', 'aria-label': label, onclick: copied }, 'Copy as CSV'), this.count);
    return bar;
  }

  grid() {
    this.heads = this.kept.map((at) => this.head(at));
    this.body = make('tbody');
    const head = make('thead', {}, make('tr', {}, ...this.heads));
    const grid = make('table', {}, make('caption', { class: 'unseen' }, this.table.title), head, this.body);
    return make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': this.table.title }, grid);
  }

  head(at) {
    const { title, unit, name, formula } = this.table.columns[at];
    const told = formula ? `${name}: ${formula}` : name;
    const button = make('button', { type: 'button', title: told, onclick: () => this.sort(at) }, title);
    return make('th', { scope: 'col', class: unit === 'name' ? '' : 'number' }, button);
  }

  more() {
    const showAll = () => { this.all = true; this.fill(); };
    this.button = make('button', { type: 'button', class: 'more', onclick: showAll });
    return this.button;
  }

  sort(at) {
    const first = this.table.columns[at].unit !== 'name'; // numbers: the largest first
    const descending = this.sorted?.[0] === at ? !this.sorted[1] : first;
    this.sorted = [at, descending];
    this.heads.forEach((head, place) => {
      if (this.kept[place] === at) head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    this.fill();
  }

  filter(words) {
    this.words = words;
    this.fill();
  }

  get view() {
    return [this.sorted, this.words, this.all];
  }

  set view([sorted, words, all]) {
    Object.assign(this, { words, all: all || this.all });
    if (this.field) this.field.value = words;
    if (sorted) {
      this.sorted = [sorted[0], !sorted[1]];
      this.sort(sorted[0]);
    } else this.fill();
  }

  text(row) {
    if (!this.texts.has(row)) {
      this.texts.set(row, this.kept.map((at) => shown(row[at], this.table.columns[at].unit)).join('\n').toLowerCase());
    }
    return this.texts.get(row);
  }

  rows() {
    const wanted = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = wanted.length
      ? this.table.rows.filter((row) => wanted.every((word) => this.text(row).includes(word)))
      : this.table.rows;
    return this.sorted ? ordered(kept, ...this.sorted) : kept;
  }

  fill() {
    const rows = this.rows();
    const few = this.all ? rows : rows.slice(0, FIRST);
    this.body.replaceChildren(...few.map((row) => this.line(row)));
    const total = this.table.rows.length;
    this.count.textContent = rows.length === total ? `${total} row${total === 1 ? '' : 's'}` : `${rows.length} of ${total} rows`;
    this.button.hidden = few.length === rows.length;
    this.button.textContent = `Show all ${rows.length} rows`;
    this.watchers.forEach((watcher) => watcher(rows));
  }

  line(row) {
    return make('tr', {}, ...this.kept.map((at, place) => {
      const { unit } = this.table.columns[at];
      const text = shown(row[at], unit);
      const kind = unit !== 'name' ? 'number' : text.length > LONG ? 'long' : 'short';
      const cell = make(place ? 'td' : 'th', { class: kind }, text);
      if (!place) cell.setAttribute('scope', 'row');
      return cell;
    }));
  }
}
