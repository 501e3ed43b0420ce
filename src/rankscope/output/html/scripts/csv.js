// Rows as comma-separated values, numbers in the unit that the column's name says.
import { tell } from './elements.js';

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function cellText(cell) {
  if (cell === null) return '';
  if (typeof cell === 'boolean') return cell ? 'True' : 'False';
  return quoted(String(cell));
}

export function toCsv(table, rows) {
  const lines = [table.columns.map((column) => quoted(column.name)), ...rows.map((row) => row.map(cellText))];
  return lines.map((cells) => `${cells.join(',')}\n`).join('');
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copiedByHand(text)) return tell(`The browser did not allow copying ${what}.`);
  }
  return tell(`Copied ${what}.`);
}

// A page opened from a disk may not have the clipboard.
function copiedByHand(text) {
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}
