// What the server said, and what the person asked to see. Knows no element of the page.

export const OVER = new Set(["completed", "canceled", "ended", "lost"]);

export const model = {
  vms: new Map(), // agent: VM
  events: new Map(), // key: event
  history: [], // newest first
  filter: { text: "", scaleSet: "", type: "", status: "", vm: "", vmStatus: "" },
  csrf: "",
  readOnly: false,
  user: "",
  problem: "",
  offset: 0, // server's clock minus ours
};

const HISTORY_MAX = 500;

export const now = () => Date.now() + model.offset;

export const isOver = (event) => OVER.has(event.status);

export function replaceAll(data) {
  model.vms = new Map(data.vms.map((vm) => [vm.agent, vm]));
  model.events = new Map(data.events.map((event) => [event.key, prepare(event)]));
  model.history = data.history.reverse();
  model.csrf = data.csrf;
  model.readOnly = data.readOnly;
  model.user = data.user;
  pulse(data);
}

export function pulse(data) {
  model.offset = Date.parse(data.time) - Date.now();
  model.problem = data.problem;
}

export function change(data) {
  for (const vm of data.vms) model.vms.set(vm.agent, vm);
  for (const agent of data.removedVms) model.vms.delete(agent);
  for (const event of data.events) model.events.set(event.key, prepare(event));
  for (const key of data.removedEvents) model.events.delete(key);
  model.history = [...data.history.reverse(), ...model.history].slice(0, HISTORY_MAX);
}

function prepare(event) {
  event.due = event.notBefore ? Date.parse(event.notBefore) : null;
  event.seen = Date.parse(event.time);
  const names = [event.id, event.vm, event.description, event.source, ...event.resources];
  event.haystack = names.join("\n").toLowerCase();
  return event;
}

export function matches(event) {
  const { text, scaleSet, type, status, vm } = model.filter;
  if (scaleSet && event.scaleSet !== scaleSet) return false;
  if (type && event.type !== type) return false;
  if (status && !hasStatus(event, status)) return false;
  if (vm && !event.agents.includes(vm) && !event.resources.includes(model.vms.get(vm)?.name)) return false;
  return !text || event.haystack.includes(text.toLowerCase());
}

function hasStatus(event, status) {
  return event.status === status || event.approval === status;
}

export function historyMatches(row) {
  const { text, scaleSet, type, vm } = model.filter;
  if (scaleSet && row.scaleSet !== scaleSet) return false;
  if (type && row.eventType !== type) return false;
  if (vm && row.vm !== model.vms.get(vm)?.name) return false;
  const haystack = `${row.vm}\n${row.eventId}\n${row.text}\n${row.kind}`.toLowerCase();
  return !text || haystack.includes(text.toLowerCase());
}

// The next to act on first; those without a time last.
export function pending() {
  return [...model.events.values()]
    .filter((event) => !isOver(event) && matches(event))
    .sort((a, b) => (a.due ?? Infinity) - (b.due ?? Infinity) || a.key.localeCompare(b.key));
}

export function recent() {
  return [...model.events.values()]
    .filter((event) => isOver(event) && matches(event))
    .sort((a, b) => b.seen - a.seen || a.key.localeCompare(b.key));
}
