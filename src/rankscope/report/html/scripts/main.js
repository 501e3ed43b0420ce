// Fills the page in.
import { sections } from './data.js';
import { TableView } from './table.js';
import { addChart, later, redraw } from './charts.js';
import { startTheme } from './theme.js';

function fill(name, section) {
  const views = new Map();
  const viewOf = (table) => {
    if (!views.has(table.name)) views.set(table.name, new TableView(table, hostOf(table.name)));
    return views.get(table.name);
  };
  const hostOf = (table) => document.getElementById(`table-${table}`).querySelector('.rows');
  section.charts.forEach((chart, at) => {
    const figure = document.getElementById(`${name}-figure-${at}`);
    const table = section.tables.find((one) => one.name === chart.table);
    later(figure, () => addChart(chart, table, figure.querySelector('.picture'), chart.kind === 'top' ? viewOf(table) : null));
  });
  section.tables.forEach((table) => later(hostOf(table.name), () => viewOf(table)));
}

startTheme();
sections.forEach((section, name) => fill(name, section));

let resized = 0;
addEventListener('resize', () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(redraw);
});
document.documentElement.dataset.ready = 'yes';
