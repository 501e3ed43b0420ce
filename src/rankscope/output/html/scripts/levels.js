// The levels of detail of a timeline: unpacked from the page, and looked up by time.

// The first block of a line that ends after a moment.
export function firstAfter(level, line, time) {
  let low = level.first[line], high = level.first[line + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (level.end[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Five columns of numbers, the lowest bytes of each first.
export async function unpacked(level) {
  const text = atob(level.data), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const first = [0];
  for (const count of level.counts) first.push(first.at(-1) + count);
  const rows = first.at(-1);
  const number = (column, row) => {
    const at = column * 4 * rows + row;
    return planes[at] + planes[at + rows] * 0x100 + planes[at + 2 * rows] * 0x10000 + planes[at + 3 * rows] * 0x1000000;
  };
    const start = new Float64Array(rows), end = new Float64Array(rows);
  const name = new Uint32Array(rows), count = new Uint32Array(rows), share = new Uint8Array(rows);
  for (let line = 0; line + 1 < first.length; line += 1) {
    let at = level.begin;
    for (let row = first[line]; row < first[line + 1]; row += 1) {
      at += number(0, row) * level.unit;
      start[row] = at;
      end[row] = at + number(1, row) * level.unit;
      name[row] = number(2, row);
      count[row] = number(3, row);
      share[row] = number(4, row);
    }
  }
  return { from: level.begin, to: level.end, resolution: level.resolution, first, start, end, name, count, share };
}
