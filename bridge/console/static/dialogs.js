// The two dialogs: details of an event, and the confirmation that names every VM.

import { $, approveCommand, clock, copy, countdown, element, moment, plural, setHidden, setText, shorten } from "./format.js";
import { APPROVAL_TEXT, focusRow, stateText, waitingNames } from "./events.js";
import { model, now } from "./model.js";

const DANGEROUS = new Set(["Terminate", "Preempt"]);
const EFFECT = {
  Freeze: (vms) => `pauses ${vms} for a moment`,
  Reboot: (vms) => `reboots ${vms}`,
  Redeploy: (vms) => `moves ${vms} to another host; temporary disks are lost`,
  Preempt: (vms) => `takes ${vms} away`,
  Terminate: (vms) => `deletes ${vms}`,
};
let shownKey = null;
let asked = null; // what the open confirmation is about: { key, revision, idempotencyKey }

export function start() {
  $("details-close").addEventListener("click", () => $("details").close());
  $("details").addEventListener("close", () => (shownKey = null));
  $("details").addEventListener("click", (event) => event.target === $("details") && $("details").close());
  $("details-approve").addEventListener("click", () => openApproval(shownKey));
  $("details-copy").addEventListener("click", (event) => copy($("details-command").textContent, event.target));
  $("approve-copy").addEventListener("click", (event) => copy($("approve-command").textContent, event.target));
  $("approve-cancel").addEventListener("click", () => $("approve").close());
  $("approve").addEventListener("close", () => (asked = null));
  $("approve-confirm").addEventListener("click", send);
  $("approve-reason").addEventListener("input", showCommand);
  // Enter in the text field leads to the button; it does not press it.
  $("approve-reason").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // or the same key press would go on to the button
    $("approve-confirm").focus();
  });
}

export async function openDetails(key) {
  shownKey = key;
  $("details-messages").replaceChildren(element("p", "muted", "loading"));
  render();
  $("details").showModal();
  await loadMessages(key);
}

async function loadMessages(key) {
  const answer = await fetch(`/api/event?key=${encodeURIComponent(key)}`);
  if (!answer.ok || shownKey !== key) return;
  const { count, messages } = await answer.json();
  const nodes = messages.map(({ agent, vm, cloudEvent }, index) => {
    const box = element("details", "message");
    box.open = index === 0;
    const pre = element("pre", "", pretty(cloudEvent));
    pre.tabIndex = 0;
    box.append(element("summary", "", `${vm} — ${agent}`), pre);
    return box;
  });
  if (count > messages.length) nodes.push(element("p", "muted", `and ${count - messages.length} more`));
  $("details-messages").replaceChildren(...nodes);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function render() {
  if (shownKey !== null) renderDetails(model.events.get(shownKey));
  if (asked) renderApproval();
}

function renderDetails(event) {
  if (!event) {
    $("details").close();
    return;
  }
  setText($("details-title"), `${event.type} of ${shorten(event.resources)}`);
  const facts = [
    ["Status", stateText(event)],
    ["Event id", event.id],
    ["VMs", event.resources.join(", ")],
    ["Not before", moment(event.notBefore) || "none given"],
    ["Source", event.source],
    ["Duration", event.durationS > 0 ? `about ${event.durationS} s` : "not given"],
    ["Description", event.description],
    ["Told by", `${plural(event.agents.length, "agent")}; ${event.vm} ${event.leader ? "leads" : "does not lead"}`],
    ["Waits for", event.waitingOn.length ? waitingNames(event) : ""],
    ["Ended", event.ended ? `${event.ended.because} (${event.ended.certainty})` : ""],
    ["Seen", moment(event.time)],
  ];
  const nodes = facts.filter(([, value]) => value).flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]);
  $("details-facts").replaceChildren(...nodes);
  $("details-outcomes").replaceChildren(...outcomes(event));
  const obstacle = model.readOnly ? "This console is read-only." : event.obstacle && `Cannot be approved from here: ${event.obstacle}.`;
  setText($("details-obstacle"), obstacle || "");
  setHidden($("details-approve"), Boolean(obstacle) || event.approval === "sent");
  setText($("details-command"), approveCommand(event, ""));
}

function outcomes(event) {
  const list = [];
  if (event.request) {
    list.push(outcomeItem("sent", event.request.at, `by ${event.request.by}`, event.request.reason));
  }
  for (const outcome of event.outcomes) {
    const words = [outcome.reason, outcome.detail, outcome.httpStatus && `HTTP ${outcome.httpStatus}`, outcome.replay && "repeated"];
    list.push(outcomeItem(outcome.status, outcome.time, outcome.by, words.filter(Boolean).join(" · ")));
  }
  return list.length ? list : [outcomeItem(event.approval, "", "", "")];
}

function outcomeItem(status, time, by, text) {
  const item = element("li", "outcome");
  const state = element("span", "state", APPROVAL_TEXT[status] ?? status);
  item.dataset.approval = status;
  item.append(state, element("span", "muted", [clock(time), by].filter(Boolean).join("  ")), element("span", "", text));
  return item;
}

export function openApproval(key) {
  const event = model.events.get(key);
  if (!event || event.obstacle || model.readOnly) return;
  asked = { key, revision: event.revision, idempotencyKey: crypto.randomUUID?.() ?? randomKey() };
  const count = plural(event.resources.length, "VM");
  setText($("approve-title"), `Approve ${event.type} of ${count}?`);
  const effect = EFFECT[event.type] ?? ((vms) => `acts on ${vms}`);
  const all = event.resources.length === 1 ? event.resources[0] : `all ${count}`;
  setText($("approve-warning"), `Azure may act at once: it ${effect(all)}. This cannot be taken back.`);
  setText($("approve-vms-title"), `This approval covers ${count}`);
  $("approve-vms").replaceChildren(...event.resources.map((name) => vmItem(name)));
  $("approve-reason").value = "";
  setText($("approve-confirm"), `Approve ${event.type} of ${count}`);
  $("approve-confirm").dataset.danger = DANGEROUS.has(event.type) ? "yes" : "no";
  $("approve-confirm").disabled = false;
  setHidden($("approve-error"), true);
  showCommand();
  renderApproval();
  $("approve").showModal();
  $("approve-reason").focus();
}

// Only browsers without a secure context lack randomUUID.
function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function vmItem(name) {
  const vm = [...model.vms.values()].find((known) => known.name.toLowerCase() === name.toLowerCase());
  const item = element("li", "", name);
  const where = vm ? [vm.scaleSet, vm.zone && `zone ${vm.zone}`, vm.status] : ["no agent seen"];
  item.append(element("span", "muted", where.filter(Boolean).join(" · ")));
  return item;
}

function showCommand() {
  const event = asked && model.events.get(asked.key);
  if (event) setText($("approve-command"), approveCommand(event, $("approve-reason").value));
}

function renderApproval() {
  const event = model.events.get(asked.key);
  const changed = !event || event.revision !== asked.revision || Boolean(event.obstacle);
  setHidden($("approve-changed"), !changed);
  if (changed) $("approve-confirm").disabled = true;
  if (event) tickApproval();
}

export function tickApproval() {
  const event = asked && model.events.get(asked.key);
  if (!event) return;
  const left = event.due === null ? "" : event.due > now() ? `not before ${clock(event.notBefore)} UTC, in ${countdown(event.due - now())}` : "due now";
  const words = [event.type, left, event.source && `from ${event.source}`, event.shadow && "agent in shadow mode: nothing will be posted"];
  setText($("approve-facts"), words.filter(Boolean).join(" · "));
}

async function send() {
  const { key, revision, idempotencyKey } = asked;
  $("approve-confirm").disabled = true;
  const body = JSON.stringify({ event: key, revision, key: idempotencyKey, reason: $("approve-reason").value });
  const problem = await post(body);
  if (asked?.idempotencyKey !== idempotencyKey) return;
  if (!problem) {
    $("approve").close();
    if (!$("details").open) focusRow(key);
    return;
  }
  setText($("approve-error"), problem);
  setHidden($("approve-error"), false);
  $("approve-confirm").disabled = false;
}

async function post(body) {
  try {
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": model.csrf };
    const answer = await fetch("/api/approve", { method: "POST", headers, body });
    return answer.ok ? "" : (await answer.text()).trim();
  } catch {
    return "The console's server did not answer. Pressing again is safe: it stays one approval.";
  }
}
