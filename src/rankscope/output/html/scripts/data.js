// What the page holds: sections with their tables and charts.

export const sections = new Map();

export function readSections(text) {
  sections.clear();
  for (const section of JSON.parse(text).sections) sections.set(section.name, section);
}

readSections(document.getElementById('data').textContent);

export const place = (table, name) => table.columns.findIndex((column) => column.name === name);

// Numbers by size, words by the numbers in them, nothing last.
export function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === 'number' && typeof other === 'number') return one - other;
  return String(one).localeCompare(String(other), 'en', { numeric: true });
}

export function ordered(rows, at, descending) {
  const sorted = [...rows].sort((one, other) => {
    if (one[at] === null || other[at] === null) return compare(one[at], other[at]);
    return descending ? compare(other[at], one[at]) : compare(one[at], other[at]);
  });
  return sorted;
}
