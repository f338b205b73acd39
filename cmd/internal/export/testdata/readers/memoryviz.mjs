// Opens a snapshot in PyTorch's viewer: memoryviz.mjs MEMORYVIZ.JS SNAPSHOT. d3 draws in a page without a layout.
// Prints, for each device, what a user finds in each view. Whatever the viewer throws ends this program.
import {readFileSync} from 'node:fs';
import d3 from 'd3';
import {JSDOM, VirtualConsole} from 'jsdom';

function fail(e) {
  console.error(e.stack.replace(/data:[^\s:]*,[^\s:]*/g, 'MemoryViz.js')); // its address has the whole text
  process.exit(1);
}
process.on('uncaughtException', fail);
const {window} = new JSDOM('<!DOCTYPE html>',
  {virtualConsole: new VirtualConsole().on('jsdomError', e => fail(e.detail ?? e))});
const {document, SVGElement} = window;
window.requestAnimationFrame = draw => draw();
window.Element.prototype.scrollIntoViewIfNeeded = () => {}; // Chrome has it
Object.defineProperty(window.SVGSVGElement.prototype, 'viewBox', {
  get() {
    const [x, y, width, height] = this.getAttribute('viewBox').split(' ').map(Number);
    return {baseVal: {x, y, width, height}};
  },
});
Object.assign(globalThis, {d3, window, document, SVGElement});
globalThis.navigator ??= window.navigator; // Node 20 has none
const print = console.log;
console.log = () => {}; // the viewer logs snapshots

const text = readFileSync(process.argv[2], 'utf8');
if (!/^import \* as d3 from .*d3@5/m.test(text)) {
  throw new Error(`${process.argv[2]} does not import d3 5: later viewers import d3 7 and process_alloc_data.js`);
}
const source = text
  .replace(/^import \* as d3 from .*$/gm, 'const d3 = globalThis.d3;')
  .replace(/^import (\{[^}]*\}) from .*$/gm, 'const $1 = globalThis.d3;');
const viewer = await import('data:text/javascript;base64,' + Buffer.from(
  source + '\nexport {snapshot_cache, process_alloc_data};').toString('base64'));

function send(node, type, fields = {}) {
  const of = {change: 'Event', keydown: 'KeyboardEvent', wheel: 'WheelEvent'}[type] ?? 'MouseEvent';
  node.dispatchEvent(new window[of](type, {bubbles: true, cancelable: true, view: window, ...fields}));
}

const [names, views, gpus] = document.querySelectorAll('select');
const body = document.body;

function choose(select, text) {
  select.value = text;
  send(select, 'change');
}

// shown returns the one drawing that is not hidden.
function shown() {
  const visible = [...body.children].filter(e => e.getAttribute('style')?.includes('display: float'));
  if (visible.length !== 1) {
    throw new Error(`${visible.length} views are visible`);
  }
  return visible[0];
}

// details moves the mouse over shapes, clicks them, and returns the texts that the view shows of them.
function details(shapes, text) {
  return [...shapes].map(shape => {
    send(shape, 'mouseover');
    const hovered = text().textContent;
    send(shape, 'mousedown');
    send(shape, 'mouseup');
    send(shape, 'mouseleave');
    return hovered;
  });
}

// timeline returns what a timeline shows of each shape, and how many shapes are left at the lowest detail. It also
// turns the wheel on the timeline, and selects a part of the small one below it.
function timeline() {
  const [plot, small] = shown().querySelectorAll('svg');
  const shapes = details(plot.querySelectorAll('polygon'), () => shown().querySelector('pre'));
  const moved = plot.querySelector('polygon').parentNode;
  send(moved, 'wheel', {clientX: 500, clientY: 300, deltaY: -100, deltaMode: 0});
  const zoomed = moved.parentNode.getAttribute('transform');
  send(small.querySelector('.overlay'), 'mousedown', {clientX: 200, clientY: 5});
  send(small, 'mousemove', {clientX: 600, clientY: 5});
  send(small, 'mouseup', {clientX: 600, clientY: 5});
  const selected = moved.getAttribute('transform');
  const slider = shown().querySelector('input');
  slider.value = '1';
  send(slider, 'change');
  return {shapes, zoomed, selected, least: shown().querySelector('svg').querySelectorAll('polygon').length};
}

// history returns what the view shows of each event, chosen with the arrow keys, and of each shape that it draws at the
// first event and at the last.
function history() {
  const [stack, list] = shown().firstChild.querySelectorAll(':scope > div, :scope > pre');
  const areas = () => details(shown().querySelectorAll('svg rect'), () => stack);
  const events = [...list.children].reverse().map((event, i) => {
    if (i > 0) {
      send(body, 'keydown', {key: 'ArrowUp'});
    }
    if (!event.getAttribute('style').includes('background')) {
      throw new Error(`${event.textContent} is not chosen`);
    }
    return stack.textContent;
  }).reverse();
  const first = areas();
  list.childNodes.forEach((event, i) => {
    if (i === 0 || i === events.length - 1) {
      send(event, 'mousedown');
      send(event, 'mouseup');
      if (stack.textContent !== events[i]) {
        throw new Error(`${stack.textContent} is shown for ${events[i]}`);
      }
    }
  });
  return {events, first, last: areas()};
}

const file = readFileSync(process.argv[3]);
const zeros = Buffer.alloc(3 - file.length % 3); // as PyTorch adds them
viewer.add_local_files([{name: 'snapshot', base64: Buffer.concat([file, zeros]).toString('base64')}],
  'Allocator State History');
const snapshot = viewer.snapshot_cache.snapshot;
const devices = [...gpus.children].map(o => o.textContent).map(gpu => {
  choose(gpus, gpu);
  const open = (view, read) => {
    choose(views, view);
    return read();
  };
  const peak = whole => viewer.process_alloc_data(snapshot, Number(gpu), whole, 15000).max_size;
  return {
    device: Number(gpu),
    history: open('Allocator State History', history),
    memory: open('Active Memory Timeline', timeline),
    cached: open('Active Cached Segment Timeline', timeline),
    peak_allocated: peak(false),
    peak_reserved: peak(true),
  };
});
if (views.children.length !== 3 || names.children.length !== 1) {
  throw new Error('the viewer has other views');
}
print(JSON.stringify(devices));
