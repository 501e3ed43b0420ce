// Fills the page in, and again where a running job has gone on.
import { readSections, sections } from './data.js';
import { copy } from './csv.js';
import { TableView } from './table.js';
import { addChart, beginNow, forgetPictures, heightOf, later, whenIdle } from './charts.js';
import { forgetListeners } from './selection.js';
import { startTheme } from './theme.js';

const tableViews = new Map(); // by the name of the table
let before = new Map(); // the same to what the reader had made of it

function viewOf(table, host) {
  if (!tableViews.has(table.name)) {
    const view = new TableView(table, host);
    tableViews.set(table.name, view);
    if (before.has(table.name)) view.view = before.get(table.name);
  }
  return tableViews.get(table.name);
}

const hostOf = (table) => document.getElementById(`table-${table.name}`).querySelector('.rows');

function fill(name, section) {
  section.charts.forEach((chart, at) => {
    const picture = document.getElementById(`${name}-figure-${at}`).querySelector('.picture');
    const table = section.tables.find((one) => one.name === chart.table);
    const groups = section.groups.find((one) => one.name === chart.groups);
    const own = () => viewOf(table, hostOf(table));
    const besides = { top: own, intervals: own, bars: () => groups, timeline: () => section.timeline }[chart.kind];
    const height = heightOf(chart, table, chart.kind === 'timeline' ? section.timeline : null);
    later(picture, height, () => addChart(chart, table, picture, besides?.()));
  });
  section.tables.forEach((table) => later(hostOf(table), TableView.height(table), () => viewOf(table, hostOf(table))));
}

function fillAll() {
  sections.forEach((section, name) => fill(name, section));
  document.querySelectorAll('.proof').forEach((proof) => proof.addEventListener('toggle', () => prove(proof)));
}

// The table that proves a finding, in place, when its sentence is opened.
function prove(proof) {
  const host = proof.querySelector('.evidence');
  const tables = [...sections.values()].flatMap((section) => section.tables);
  if (proof.open && !host.children.length) new TableView(tables.find((one) => one.name === proof.dataset.table), host);
}

startTheme();
fillAll();

// A link to a table that is folded opens it.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === 'DETAILS') target.open = true;
}

const link = document.getElementById('link');
link.hidden = false;
link.addEventListener('click', () => copy(location.href, 'the link'));
addEventListener('hashchange', unfold);
unfold();

// ---------------------------------------------------------------- newer numbers, and the reader where he was
const main = document.getElementById('main');
// by its place and its words: the numbers in them change
const keyOf = (details) => details.id || `${details.closest('section')?.id} ${details.querySelector('summary').textContent.replace(/[\d.,]+/g, '#')}`;
const CONTROLS = 'a, button, input, select, summary, canvas, [tabindex]';

// Which control has the focus: the how many-th of the part that it is in.
function focused() {
  const at = document.activeElement, part = at && main.contains(at) ? at.closest('[id]') : null;
  return part && part !== main ? [part.id, [...part.querySelectorAll(CONTROLS)].indexOf(at), at.selectionStart] : null;
}

function focusAgain([id, place, caret]) {
  const part = document.getElementById(id), control = place < 0 ? part : part?.querySelectorAll(CONTROLS)[place];
  control?.focus({ preventScroll: true });
  if (typeof caret === 'number') control?.setSelectionRange?.(caret, caret);
}

// The part that is at the top of the window, and where.
function inSight() {
  const parts = [...main.querySelectorAll('section, li[id]')].map((part) => [part.id, part.getBoundingClientRect()]);
  const found = parts.find(([, box]) => box.bottom > 60);
  return found && scrollY > 0 ? [found[0], found[1].top] : null;
}

function backTo([id, top]) {
  const part = document.getElementById(id);
  if (part) scrollBy({ top: part.getBoundingClientRect().top - top, behavior: 'instant' });
}

export function refill(content) {
  const open = new Map([...main.querySelectorAll('details')].map((one) => [keyOf(one), one.open]));
  const [focus, sight] = [focused(), inSight()];
  before = new Map([...tableViews].map(([name, view]) => [name, view.view]));
  tableViews.clear();
  const pictures = forgetPictures();
  forgetListeners();
  // markup of the page's own maker, in which every name is text
  main.innerHTML = content.main;
  document.querySelector('nav ol').innerHTML = content.contents;
  document.querySelector('header p').innerHTML = content.facts;
  readSections(content.data);
  fillAll();
  main.querySelectorAll('details').forEach((one) => { if (open.has(keyOf(one))) one.open = open.get(keyOf(one)); });
  document.querySelectorAll('.proof').forEach(prove);
  pictures.forEach((name) => beginNow(document.getElementById(name)?.querySelector('.picture')));
  before.forEach((_, name) => beginNow(document.querySelector(`#table-${CSS.escape(name)} .rows`)));
  if (sight) {
    backTo(sight);
    requestAnimationFrame(() => backTo(sight)); // what was drawn may be a little taller than its place
  }
  if (focus) focusAgain(focus);
  whenIdle();
}

document.documentElement.dataset.ready = 'yes';
