// Numbers as people read them: the twin of output/cells.py.

const TIMES = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
const SIZES = [5, 4, 3, 2, 1].map((power) => [1024 ** power, `${'KMGTP'[power - 1]}iB`]);

// As toFixed, but exact halves go to the even digit; only a sum of a few powers of two can be one.
function fixed(number, digits) {
  const scaled = Math.abs(number) * 10 ** digits;
  if (scaled % 1 !== 0.5 || !Number.isInteger(number * 2 ** (digits + 1))) return number.toFixed(digits);
  const down = Math.floor(scaled);
  return (Math.sign(number) * (down % 2 ? down + 1 : down) / 10 ** digits).toFixed(digits);
}

const commas = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, ',');

function digits(number) {
  const size = Math.abs(number);
  if (size >= 9999.5) return commas(fixed(number, 0));
  if (size >= 99.95) return fixed(number, 0);
  return fixed(number, size >= 9.995 ? 1 : 2);
}

export function timeText(ns) {
  if (!ns) return '0 s';
  const [scale, unit] = TIMES.find(([least]) => Math.abs(ns) >= least) ?? TIMES[3];
  return `${digits(ns / scale)} ${unit}`;
}

export function sizeText(bytes) {
  const found = SIZES.find(([least]) => Math.abs(bytes) >= least);
  if (found) return `${digits(bytes / found[0])} ${found[1]}`;
  return `${fixed(bytes, Number.isInteger(bytes) ? 0 : 1)} B`;
}

function shareText(share) {
  return share > 0 && share < 0.0005 ? '<0.1 %' : `${fixed(100 * share, 1)} %`;
}

export function shown(cell, unit) {
  if (cell === null) return '';
  if (typeof cell === 'boolean') return cell ? 'True' : 'False';
  if (typeof cell === 'string' || unit === 'name') return String(cell);
  if (unit === 'ns') return timeText(cell);
  if (unit === 'bytes') return sizeText(cell);
  if (unit === 'bytes/s') return `${sizeText(cell)}/s`;
  if (unit === 'share') return shareText(cell);
  if (Number.isInteger(cell) && unit === 'count') return commas(String(cell));
  return cell && Math.abs(cell) < 0.01 ? twoDigits(cell) : fixed(cell, 2);
}

// As Python's .2g: 0.00065, but 6.5e-05.
function twoDigits(number) {
  const [mantissa, power] = number.toExponential(1).split('e').map(Number);
  return power < -4 ? `${mantissa}e-${String(-power).padStart(2, '0')}` : String(Number(number.toPrecision(2)));
}

// The unit in which all ticks of an axis are told, and the steps between them that are round in it.
export function axisUnit(unit, largest) {
  if (unit === 'share') return { scale: 0.01, name: '%' };
  const known = unit === 'ns' ? TIMES : unit === 'bytes' ? SIZES : unit === 'bytes/s' ? SIZES : [];
  const found = known.find(([least]) => largest >= least);
  if (found) return { scale: found[0], name: unit === 'bytes/s' ? `${found[1]}/s` : found[1] };
  return { scale: 1, name: { ns: 'ns', bytes: 'B', 'bytes/s': 'B/s' }[unit] ?? '' };
}

export function tickText(number) {
  const [whole, ...rest] = String(Number(number.toPrecision(6))).split('.');
  return [commas(whole), ...rest].join('.');
}
