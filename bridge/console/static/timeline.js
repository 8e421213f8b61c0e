// The same events along a line of time: what ended to the left of now, what comes to the right.

import { $, element, setData, setText, shorten } from "./format.js";
import { isOver, matches, model, now } from "./model.js";

const PAST_MS = 5 * 60000;
const SPANS_MS = [15, 30, 60, 240].map((minutes) => minutes * 60000);
const TICKS_MIN = { 15: 5, 30: 5, 60: 15, 240: 60 };
const LANES = 3; // with names; what finds no room stands in one more, as bars
const PIN_PX = 158; // a pin with its name
const NARROW_PIN_PX = 92;
const PINS_MAX = 120;
const pins = new Map(); // key: element
let span = 0;
let width = 0;
let handlers = {};

export function start(given) {
  handlers = given;
  new ResizeObserver(([entry]) => {
    width = entry.contentRect.width;
    tick();
  }).observe($("timeline"));
}

export function render() {
  const at = now();
  const shown = [...model.events.values()]
    .filter((event) => matches(event) && placeOf(event, at) !== null)
    .sort((a, b) => placeOf(a, at) - placeOf(b, at))
    .slice(0, PINS_MAX);
  chooseSpan(shown, at);
  const keys = new Set(shown.map((event) => event.key));
  for (const [key, pin] of pins) {
    if (!keys.has(key)) {
      pin.remove();
      pins.delete(key);
    }
  }
  for (const event of shown) paint(pins.get(event.key) ?? make(event.key), event);
  tick();
}

// When it stands on the line; null when it is too old for it.
function placeOf(event, at) {
  const place = isOver(event) || event.status === "started" ? event.seen : event.due;
  return place === null || place < at - PAST_MS ? (isOver(event) || place === null ? null : at) : place;
}

function chooseSpan(events, at) {
  const furthest = Math.max(0, ...events.map((event) => placeOf(event, at) - at));
  const wanted = SPANS_MS.find((length) => length >= furthest) ?? SPANS_MS.at(-1);
  if (wanted === span) return;
  span = wanted;
  const step = TICKS_MIN[span / 60000] * 60000;
  const marks = [];
  const offsets = [-PAST_MS];
  for (let offset = 0; offset <= span; offset += step) offsets.push(offset);
  for (const offset of offsets) {
    const mark = element("span", "mark", offset === 0 ? "now" : `${offset > 0 ? "+" : "−"}${Math.abs(offset) / 60000} min`);
    mark.style.left = `${share(offset) * 100}%`;
    marks.push(mark);
  }
  $("timeline-axis").replaceChildren(...marks);
  $("timeline").style.setProperty("--now", `${share(0) * 100}%`);
}

const share = (offset) => (offset + PAST_MS) / (span + PAST_MS);

function make(key) {
  const pin = element("button", "pin");
  pin.type = "button";
  pin.tabIndex = -1; // the lists below offer the same to keyboards and screen readers
  pin.append(element("span", "pin-name"));
  pin.addEventListener("click", () => handlers.details(key));
  pins.set(key, pin);
  $("timeline-pins").append(pin);
  return pin;
}

function paint(pin, event) {
  pin.event = event;
  setData(pin, "type", event.type);
  setData(pin, "status", event.status);
  setData(pin, "approval", event.approval);
  setText(pin.firstChild, shorten(event.resources.length ? event.resources : [event.vm], 1));
  pin.title = `${event.type} of ${shorten(event.resources, 6)}`;
}

export function tick() {
  const at = now();
  const ends = Array(LANES).fill(-1);
  const gap = (width > 600 ? PIN_PX : NARROW_PIN_PX) / (width || 1);
  let lanes = 1;
  const ordered = [...pins.values()].sort((a, b) => placeOf(a.event, at) - placeOf(b.event, at));
  for (const pin of ordered) {
    const x = share(Math.min(span, (placeOf(pin.event, at) ?? at) - at));
    const isLate = x + gap > 1; // its name stands to the left of it
    const from = isLate ? x - gap : x;
    let lane = ends.findIndex((end) => end <= from);
    setData(pin, "crowded", lane < 0 ? "yes" : "no");
    setData(pin, "late", isLate ? "yes" : "no");
    if (lane < 0) lane = LANES;
    else ends[lane] = from + gap;
    lanes = Math.max(lanes, lane + 1);
    pin.style.setProperty("--x", `${(x * 100).toFixed(2)}%`);
    pin.style.setProperty("--lane", String(lane));
  }
  $("timeline").style.setProperty("--lanes", String(Math.max(2, lanes)));
}
