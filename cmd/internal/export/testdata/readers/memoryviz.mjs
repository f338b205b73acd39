// Lets PyTorch's viewer read a snapshot: memoryviz.mjs MEMORYVIZ.JS SNAPSHOT. Only what draws in a page is replaced.
// Prints, for each device, the segments, what the viewer computes for each event, and its timelines.
import {readFileSync} from 'node:fs';

// nothing stands for a page: it is callable, chainable, and 0 as a number.
const nothing = new Proxy(() => nothing, {
  get: (_of, key) => key === Symbol.toPrimitive ? () => 0 : nothing,
  apply: () => nothing,
});
globalThis.nothing = nothing;
const source = readFileSync(process.argv[2], 'utf8')
  .replace(/^import \* as (\w+) from .*$/gm, 'const $1 = nothing;')
  .replace(/^import (\{[^}]*\}) from .*$/gm, 'const $1 = nothing;');
const viewer = await import('data:text/javascript;base64,' + Buffer.from(
  source + '\nexport {unpickle, annotate_snapshot, process_alloc_data, MemoryView};').toString('base64'));

const file = readFileSync(process.argv[3]);
const snapshot = viewer.unpickle(file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength));
viewer.annotate_snapshot(snapshot);
const devices = snapshot.device_traces.map((events, device) => {
  const view = viewer.MemoryView(nothing, nothing, snapshot, device);
  const segments = snapshot.segments.filter(s => s.device === device);
  const blocks = viewer.process_alloc_data(snapshot, device, false, 15000);
  const whole = viewer.process_alloc_data(snapshot, device, true, 15000);
  return {
    events: events.length,
    segments: segments.length,
    blocks: segments.flatMap(s => s.blocks).filter(b => b.state === 'active_allocated').length,
    totals: events.map((_event, i) => view.draw(i)), // [reserved, allocated] after each event
    peak_allocated: blocks.max_size,
    peak_reserved: whole.max_size,
    streams: [...new Set(segments.map(s => s.stream))].sort(),
    first: whole.elements_length > 0 ? whole.context_for_id(0) : '', // as a click shows it
  };
});
console.log(JSON.stringify(devices));
