// Fills the page in.
import { sections } from './data.js';
import { copy } from './csv.js';
import { TableView } from './table.js';
import { addChart, heightOf, later, whenIdle } from './charts.js';
import { startTheme } from './theme.js';

const hostOf = (table) => document.getElementById(`table-${table.name}`).querySelector('.rows');

function fill(name, section) {
  const views = new Map();
  const viewOf = (table) => {
    if (!views.has(table.name)) views.set(table.name, new TableView(table, hostOf(table)));
    return views.get(table.name);
  };
  section.charts.forEach((chart, at) => {
    const picture = document.getElementById(`${name}-figure-${at}`).querySelector('.picture');
    const table = section.tables.find((one) => one.name === chart.table);
    const groups = section.groups.find((one) => one.name === chart.groups);
    const besides = { top: () => viewOf(table), intervals: () => viewOf(table), bars: () => groups, timeline: () => section.timeline }[chart.kind];
    const height = heightOf(chart, table, chart.kind === 'timeline' ? section.timeline : null);
    later(picture, height, () => addChart(chart, table, picture, besides?.()));
  });
  section.tables.forEach((table) => later(hostOf(table), TableView.height(table), () => viewOf(table)));
}

startTheme();
sections.forEach((section, name) => fill(name, section));
whenIdle();

// A link to a table that is folded opens it.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === 'DETAILS') target.open = true;
}

// The table that proves a finding, in place, when its sentence is opened.
const tables = new Map([...sections.values()].flatMap((section) => section.tables.map((table) => [table.name, table])));
document.querySelectorAll('.proof').forEach((proof) => proof.addEventListener('toggle', () => {
  const host = proof.querySelector('.evidence');
  if (proof.open && !host.children.length) new TableView(tables.get(proof.dataset.table), host);
}));

const link = document.getElementById('link');
link.hidden = false;
link.addEventListener('click', () => copy(location.href, 'the link'));
addEventListener('hashchange', unfold);
unfold();

document.documentElement.dataset.ready = 'yes';
