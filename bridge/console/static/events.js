// Rows of events: made once, changed where they differ, counted down every second.

import { $, ago, arrange, countdown, element, plural, setData, setHidden, setText, shorten } from "./format.js";
import { isOver, model, now, pending, recent } from "./model.js";

const RECENT_MAX = 50;
const URGENT_MS = 2 * 60000;
const SOON_MS = 5 * 60000;
const rows = new Map(); // key: parts of a row
let handlers = {};

export const APPROVAL_TEXT = {
  none: "awaits approval",
  sent: "sent, no answer yet",
  accepted: "accepted",
  sending: "being sent to Azure",
  approved: "approved",
  confirmed: "confirmed",
  rejected: "rejected",
  "in-doubt": "in doubt",
  foreign: "not by us",
};

export function start(given) {
  handlers = given;
}

export function render() {
  const open = pending();
  const over = recent().slice(0, RECENT_MAX);
  show("pending", open);
  show("recent", over);
  const shown = new Set([...open, ...over].map((event) => event.key));
  for (const key of rows.keys()) if (!shown.has(key)) rows.delete(key);
  tick();
}

function show(list, events) {
  setText($(`${list}-count`), String(events.length));
  setHidden($(`${list}-empty`), events.length > 0);
  arrange($(`${list}-list`), events.map((event) => paint(rows.get(event.key) ?? make(event.key), event).node));
}

function make(key) {
  const node = element("li", "event");
  const row = {
    node,
    time: element("div", "time"),
    left: element("span", "left"),
    when: element("span", "when"),
    type: element("span", "type"),
    vms: element("button", "vms link-button"),
    meta: element("p", "meta"),
    note: element("p", "note"),
    state: element("span", "state"),
    approve: element("button", "approve", "Approve…"),
  };
  row.time.append(row.left, row.when);
  const what = element("div", "what");
  const heading = element("div", "heading");
  heading.append(row.type, row.vms);
  what.append(heading, row.meta, row.note);
  const act = element("div", "act");
  act.append(row.state, row.approve);
  node.append(row.time, what, act);
  row.vms.type = row.approve.type = "button";
  row.vms.addEventListener("click", () => handlers.details(key));
  row.approve.addEventListener("click", () => handlers.approve(key));
  rows.set(key, row);
  return row;
}

function paint(row, event) {
  row.event = event;
  const { node } = row;
  setData(node, "status", event.status);
  setData(node, "approval", event.approval);
  setData(node, "key", event.key);
  setText(row.type, event.type || "Event");
  setData(row.type, "type", event.type);
  setText(row.vms, shorten(event.resources.length ? event.resources : [event.vm]));
  row.vms.setAttribute("aria-label", `Details: ${event.type} of ${shorten(event.resources, 5)}`);
  setText(row.meta, metaText(event));
  const note = noteText(event);
  setText(row.note, note);
  setHidden(row.note, !note);
  setText(row.state, stateText(event));
  const offered = !model.readOnly && !event.obstacle && event.approval !== "sent";
  setHidden(row.approve, !offered);
  row.approve.setAttribute("aria-label", `Approve ${event.type} of ${shorten(event.resources, 5)}`);
  return row;
}

function metaText(event) {
  const zone = event.resources.length === 1 && event.zone ? `zone ${event.zone}` : ""; // the leader's, of several
  const where = [event.scaleSet, zone].filter(Boolean).join(" / ");
  const duration = event.durationS > 0 ? `about ${event.durationS} s` : "";
  const agent = event.agentStatus === "online" ? "" : `agent ${event.agentStatus}`;
  const count = event.resources.length === 1 ? "" : plural(event.resources.length, "VM");
  const words = [count, where, event.source, duration, event.shadow ? "shadow mode" : "", agent];
  return words.filter(Boolean).join(" · ");
}

function noteText(event) {
  if (isOver(event)) return event.ended?.because ?? (event.status === "lost" ? "its VM went away; how it ended is not known" : "");
  if (event.waitingOn.length) return `Azure waits for ${plural(event.waitingOn.length, "other Terminate event")}: ${waitingNames(event)}`;
  const last = event.outcomes.at(-1);
  if (last && ["rejected", "in-doubt"].includes(last.status)) {
    return [last.reason, last.detail].filter(Boolean).join(": ");
  }
  return event.description;
}

export function waitingNames(event) {
  const names = event.waitingOn.map((id) => model.events.get(id.toLowerCase())?.resources.join(", ") ?? id);
  return shorten(names);
}

export function stateText(event) {
  if (isOver(event)) return event.status === "lost" ? "lost sight of" : event.status;
  if (event.status === "started") {
    const by = { approved: "approved", confirmed: "approved", "in-doubt": "in doubt" }[event.approval];
    return by ? `started, ${by}` : "started";
  }
  return APPROVAL_TEXT[event.approval] ?? event.approval;
}

// After a dialog whose button is gone.
export function focusRow(key) {
  rows.get(key)?.vms.focus();
}

// Every second: only the numbers that are on the page.
export function tick() {
  const at = now();
  for (const row of rows.values()) {
    if (!row.event) continue;
    const [left, when, urgency] = timeOf(row.event, at);
    setText(row.left, left);
    setText(row.when, when);
    setData(row.node, "urgency", urgency);
  }
}

function timeOf(event, at) {
  if (isOver(event)) return [ago(at - event.seen), "", "none"];
  if (event.status === "started") return ["running", ago(at - event.seen), "none"];
  if (event.due === null) return ["any time", "", "none"];
  const left = event.due - at;
  const when = `${new Date(event.due).toISOString().slice(11, 16)} UTC`;
  if (left <= 0) return ["due", when, "urgent"];
  return [countdown(left), when, left < URGENT_MS ? "urgent" : left < SOON_MS ? "soon" : "later"];
}
