// Colours that people who see colours differently can tell apart: those of Okabe and Ito, and cividis.

const BLUE = '#0072B2', ORANGE = '#E69F00', GREEN = '#009E73', VERMILLION = '#D55E00';
const PURPLE = '#CC79A7', SKY = '#56B4E9', YELLOW = '#F0E442', GREY = '#8C8C8C';
const OTHERS = [SKY, GREEN, ORANGE, PURPLE, BLUE, YELLOW, VERMILLION, '#7A5195', '#A6761D', '#66C2A5', '#B3B3B3', '#1B4F72'];

// The same thing has the same colour in every picture.
const KNOWN = {
  exposed_wait_ns: VERMILLION, wait_ns: VERMILLION,
  exposed_transfer_ns: BLUE, exposed_ns: BLUE, transfer_ns: BLUE, comm_ns: BLUE,
  comm_exposed_ns: BLUE, overlap_ns: SKY, copy_alone_ns: PURPLE,
  other_ns: GREY, idle_ns: GREY, compute_ns: GREEN, outside_ns: GREEN, compute_alone_ns: GREEN,
  copy_ns: PURPLE, launch_ns: '#A6761D', sync_ns: '#7A5195', preempted_ns: '#1B4F72', python_ns: YELLOW, gc_ns: '#66C2A5',
  compile_ns: VERMILLION, blocked_ns: '#9ECAE1', checkpoint_ns: '#B3B3B3', device_ns: '#C9CDD2', unknown_ns: GREY,
  data_ns: ORANGE, forward_ns: SKY, backward_ns: GREEN, optimizer_ns: PURPLE, zero_grad_ns: YELLOW,
};

export function partColours(names) {
  const used = new Set(names.map((name) => KNOWN[name]).filter(Boolean));
  const left = OTHERS.filter((colour) => !used.has(colour));
  let next = 0;
  return names.map((name) => KNOWN[name] ?? (left.length ? left[next++ % left.length] : GREY));
}

const CIVIDIS = [[0, 32, 77], [49, 68, 107], [102, 104, 112], [149, 143, 120], [203, 186, 105], [255, 234, 70]];

// From 0 (nothing) to 1 (the most).
export function heatColour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return CIVIDIS[low].map((value, channel) => Math.round(value + (CIVIDIS[low + 1][channel] - value) * (at - low)));
}

const KINDS = { communication: BLUE, copy: PURPLE };
const NAMED = [GREEN, SKY, ORANGE, YELLOW, '#66C2A5', '#A6761D', '#7A5195', VERMILLION];

// Of communication, copies, and parts of the step by the names of their columns.
export const kindColour = (kind) => KINDS[kind] ?? KNOWN[kind] ?? (kind ? GREY : null);

// The same for the same name on every page.
export function nameColour(name) {
  let sum = 0;
  for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
  return NAMED[sum % NAMED.length];
}
