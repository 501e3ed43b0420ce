// Perfetto's own trace processor, as WebAssembly, outside of a browser:
//   node engine.js ENGINE_FOLDER TRACE QUERY…    prints the rows of each query as one line of JSON
'use strict';
const fs = require('fs'), path = require('path');
const [folder, trace, ...queries] = process.argv.slice(2);

class FileRequest {  // what a worker of a browser would fetch
  open(_, url) { this.url = url; }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
}

const worker = { location: { href: 'file:///engine_bundle.js' } };
const quiet = { log() {}, warn() {}, error() {} };
const code = fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8');
// it takes itself for the worker of a browser where there is a WorkerGlobalScope and no process
new Function('self', 'WorkerGlobalScope', 'process', 'XMLHttpRequest', 'location', 'console', code)(
  worker, Object, undefined, FileRequest, worker.location, quiet);

// ---- the few protocol buffers of the engine's remote calls
function varint(n) { const out = []; while (n > 127) { out.push((n & 127) | 128); n = Math.floor(n / 128); } out.push(n); return Buffer.from(out); }
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const message = (field, body) => Buffer.concat([varint(field * 8 + 2), varint(body.length), body]);
function* fields(bytes) {
  let at = 0;
  const read = () => { let n = 0n, shift = 0n, b; do { b = bytes[at++]; n |= BigInt(b & 127) << shift; shift += 7n; } while (b & 128); return n; };
  while (at < bytes.length) {
    const tag = Number(read()), kind = tag & 7;
    if (kind === 0) yield [tag >> 3, read()];
    else if (kind === 1) { yield [tag >> 3, bytes.subarray(at, at + 8)]; at += 8; }
    else if (kind === 5) { yield [tag >> 3, bytes.subarray(at, at + 4)]; at += 4; }
    else { const size = Number(read()); yield [tag >> 3, bytes.subarray(at, at + size)]; at += size; }
  }
}
function* packed(bytes) { let n = 0n, shift = 0n; for (const b of bytes) { n |= BigInt(b & 127) << shift; shift += 7n; if (!(b & 128)) { yield n; n = 0n; shift = 0n; } } }

const APPEND = 1, FINALIZE = 2, QUERY = 3;
let sequence = 0, answers = [];
const port = { postMessage: (bytes) => { for (const [field, body] of fields(Buffer.from(bytes))) if (field === 1) answers.push(body); } };
worker.onmessage({ data: port });

function call(kind, more) {
  const body = message(1, Buffer.concat([number(1, sequence++), number(2, kind), ...more]));
  answers = [];
  port.onmessage({ data: new Uint8Array(body) });
  return answers;
}

function rows(replies) {
  let names = [], cells = [];
  for (const reply of replies) for (const [field, result] of fields(reply)) {
    if (field === 5) throw new Error(result.toString());
    if (field !== 203) continue;
    for (const [what, body] of fields(result)) {
      if (what === 1) names.push(body.toString());
      if (what === 2) throw new Error(body.toString());
      if (what === 3) cells.push(...batch(body));
    }
  }
  const made = [];
  for (let at = 0; at < cells.length; at += names.length) made.push(Object.fromEntries(names.map((name, k) => [name, cells[at + k]])));
  return made;
}

function batch(bytes) {
  let kinds = [], ints = [], floats = [], texts = [];
  for (const [field, body] of fields(bytes)) {
    if (field === 1) kinds = [...packed(body)].map(Number);
    if (field === 2) ints = [...packed(body)].map((n) => BigInt.asIntN(64, n));
    if (field === 3) floats = Array.from({ length: body.length / 8 }, (_, k) => body.readDoubleLE(8 * k));
    if (field === 5) texts = body.toString().split('\0');
  }
  // 1: null, 2: whole number, 3: float, 4: text
  return kinds.map((kind) => kind === 2 ? ints.shift().toString() : kind === 3 ? floats.shift() : kind === 4 ? texts.shift() : null);
}

setTimeout(() => {
  const file = fs.openSync(trace), block = Buffer.alloc(8 << 20);
  for (let size; (size = fs.readSync(file, block)) > 0;) call(APPEND, [message(101, block.subarray(0, size))]);
  call(FINALIZE, []);
  for (const query of queries) console.log(JSON.stringify(rows(call(QUERY, [message(103, message(1, Buffer.from(query)))]))));
  process.exit(0);
}, 0);
