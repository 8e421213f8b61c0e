// All VMs as tiles, by scale set and zone. A tile is made once and then only changed.

import { $, ago, arrange, element, plural, setData, setHidden, setText } from "./format.js";
import { isOver, model, now } from "./model.js";

const STATUSES = ["online", "blind", "silent", "offline"];
const MEANING = {
  online: "polls and publishes",
  blind: "no good poll of IMDS",
  silent: "says it is online, but nothing was heard",
  offline: "agent stopped, or VM gone",
};
const DENSE_FROM = 80; // more tiles than this are shown without their names
const tiles = new Map(); // agent: button
const groups = new Map(); // scale set: { section, zones: Map(zone: { box, list }) }
let onFilter = () => {};

export function start(changed) {
  onFilter = changed;
  for (const status of STATUSES) $("legend").append(legendButton(status));
  const box = $("groups");
  box.addEventListener("click", (event) => press(event.target.closest(".tile")));
  box.addEventListener("pointerover", (event) => describe(event.target.closest(".tile")));
  box.addEventListener("focusin", (event) => describe(event.target.closest(".tile")));
  box.addEventListener("keydown", walk);
}

function legendButton(status) {
  const button = element("button", "legend-item");
  button.type = "button";
  button.dataset.status = status;
  button.title = MEANING[status];
  button.setAttribute("aria-pressed", "false");
  const swatch = element("span", "swatch");
  swatch.setAttribute("aria-hidden", "true");
  button.append(swatch, element("span", "number", "0"), element("span", "", status));
  button.addEventListener("click", () => {
    model.filter.vmStatus = model.filter.vmStatus === status ? "" : status;
    onFilter();
  });
  return button;
}

export function render() {
  const busy = busyVms();
  const vms = [...model.vms.values()].sort(byName);
  setText($("fleet-count"), plural(vms.length, "VM"));
  $("groups").classList.toggle("dense", vms.length > DENSE_FROM);
  renderLegend(vms);
  const wanted = new Map();
  for (const vm of vms) {
    const tile = tiles.get(vm.agent) ?? makeTile(vm);
    paint(tile, vm, busy.get(vm.agent) ?? 0);
    const zones = wanted.get(vm.scaleSet) ?? new Map();
    wanted.set(vm.scaleSet, zones);
    if (!zones.has(vm.zone)) zones.set(vm.zone, []);
    zones.get(vm.zone).push(tile);
  }
  for (const agent of tiles.keys()) if (!model.vms.has(agent)) tiles.delete(agent);
  place(wanted);
}

function busyVms() {
  const busy = new Map();
  for (const event of model.events.values()) {
    if (isOver(event)) continue;
    for (const agent of event.agents) busy.set(agent, (busy.get(agent) ?? 0) + 1);
  }
  return busy;
}

const collator = new Intl.Collator("en", { numeric: true });
const byName = (a, b) => collator.compare(a.name, b.name);

function renderLegend(vms) {
  const counts = Object.fromEntries(STATUSES.map((status) => [status, 0]));
  for (const vm of vms) counts[vm.status] = (counts[vm.status] ?? 0) + 1;
  for (const button of $("legend").children) {
    const { status } = button.dataset;
    setText(button.querySelector(".number"), String(counts[status]));
    button.setAttribute("aria-pressed", String(model.filter.vmStatus === status));
    setHidden(button, status !== "online" && counts[status] === 0 && model.filter.vmStatus !== status);
  }
}

function makeTile(vm) {
  const tile = element("button", "tile");
  tile.type = "button";
  tile.tabIndex = -1;
  tile.dataset.agent = vm.agent;
  tiles.set(vm.agent, tile);
  return tile;
}

function paint(tile, vm, count) {
  const { vm: chosen, vmStatus } = model.filter;
  setText(tile, shortName(vm));
  setData(tile, "status", vm.status);
  setData(tile, "busy", count ? "yes" : "no");
  setData(tile, "dim", (vmStatus && vmStatus !== vm.status) || (chosen && chosen !== vm.agent) ? "yes" : "no");
  const label = `${vm.name}, ${vm.status}${count ? `, ${plural(count, "pending event")}` : ""}`;
  if (tile.getAttribute("aria-label") !== label) tile.setAttribute("aria-label", label);
  const pressed = String(chosen === vm.agent);
  if (tile.getAttribute("aria-pressed") !== pressed) tile.setAttribute("aria-pressed", pressed);
}

// The heading names the scale set already.
function shortName(vm) {
  const prefix = `${vm.scaleSet}_`;
  return vm.scaleSet && vm.name.startsWith(prefix) ? vm.name.slice(prefix.length) : vm.name;
}

// VMs without a scale set, or a zone, come last.
const byGroup = (a, b) => Number(!a) - Number(!b) || collator.compare(a, b);

function place(wanted) {
  const names = [...wanted.keys()].sort(byGroup);
  for (const name of groups.keys()) if (!wanted.has(name)) groups.delete(name);
  const sections = names.map((name) => {
    const group = groups.get(name) ?? makeGroup(name);
    const zones = wanted.get(name);
    for (const zone of group.zones.keys()) if (!zones.has(zone)) group.zones.delete(zone);
    const boxes = [...zones.keys()].sort(byGroup).map((zone) => {
      const box = group.zones.get(zone) ?? makeZone(group, name, zone);
      arrange(box.list, zones.get(zone));
      if (!box.list.querySelector('[tabindex="0"]')) box.list.firstElementChild.tabIndex = 0;
      setText(box.count, String(zones.get(zone).length));
      return box.node;
    });
    arrange(group.body, boxes);
    return group.section;
  });
  arrange($("groups"), sections);
}

function makeGroup(name) {
  const section = element("section", "group");
  const body = element("div", "zones");
  section.append(element("h3", "", name || "without a scale set"), body);
  const group = { section, body, zones: new Map() };
  groups.set(name, group);
  return group;
}

function makeZone(group, scaleSet, zone) {
  const node = element("div", "zone");
  const heading = element("div", "zone-name", zone ? `zone ${zone}` : "no zone");
  const count = element("span", "muted");
  heading.append(count);
  const list = element("div", "tiles");
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", `${scaleSet || "VMs without a scale set"}, ${zone ? `zone ${zone}` : "no zone"}`);
  node.append(heading, list);
  const box = { node, list, count };
  group.zones.set(zone, box);
  return box;
}

function press(tile) {
  if (!tile) return;
  const { agent } = tile.dataset;
  model.filter.vm = model.filter.vm === agent ? "" : agent;
  onFilter();
}

function describe(tile) {
  const vm = tile && model.vms.get(tile.dataset.agent);
  if (!vm) return;
  const words = [vm.name, `${vm.status}, ${ago(now() - Date.parse(vm.since))}`];
  if (vm.location) words.push(vm.location);
  if (vm.approvals && vm.approvals !== "enforce") words.push(`approvals: ${vm.approvals}`);
  if (vm.version) words.push(`v${vm.version}`);
  setText($("vm-info"), words.join(" · "));
}

// One tab stop a zone; arrows walk inside it.
function walk(event) {
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  const tile = event.target.closest(".tile");
  const step = steps[event.key];
  if (!tile || step === undefined) return;
  const all = [...tile.parentElement.children];
  const next = all[Math.min(all.length - 1, Math.max(0, all.indexOf(tile) + step))];
  event.preventDefault();
  tile.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
