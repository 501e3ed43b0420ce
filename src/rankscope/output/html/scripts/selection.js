// Which steps the reader has chosen: whatever can show some steps only listens.

let listeners = [];
let chosen = null; // { first, last: numbers of steps, begin, end: ns since the run began }, null: all

export function onSteps(listener) {
  listeners.push(listener);
  if (chosen) listener(chosen);
}

// Others will listen; what is chosen stays.
export function forgetListeners() {
  listeners = [];
}

export function chooseSteps(steps) {
  if (steps?.first === chosen?.first && steps?.last === chosen?.last) return;
  chosen = steps;
  listeners.forEach((listener) => listener(chosen));
}
