// Wires the parts: one stream of changes in, one rendering a frame, one tick a second.

import { $, plural, setData, setHidden, setText, shorten, spoken } from "./format.js";
import { change, isOver, model, now, pulse, replaceAll } from "./model.js";
import * as dialogs from "./dialogs.js";
import * as events from "./events.js";
import * as fleet from "./fleet.js";
import * as history from "./history.js";
import * as timeline from "./timeline.js";

const RETRY_MS = 3000;
const SILENT_MS = 25000; // two pings and a half
let scheduled = false;
let heardAt = 0;
let source = null;

function render() {
  scheduled = false;
  fleet.render();
  events.render();
  timeline.render();
  history.render();
  dialogs.render();
  renderFilters();
  renderHeader();
}

// However many messages arrive, the page is drawn once a frame at most.
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(render);
}

function renderHeader() {
  const waiting = [...model.events.values()].filter((event) => event.status === "scheduled" && ["none", "rejected"].includes(event.approval));
  const doubts = [...model.events.values()].filter((event) => !isOver(event) && event.approval === "in-doubt").length;
  setText($("waiting"), plural(waiting.length, "event") + (waiting.length === 1 ? " awaits" : " await") + " approval");
  setData($("waiting"), "tone", waiting.length ? "busy" : "calm");
  setText($("doubts"), doubts ? `${doubts} in doubt` : "");
  document.title = `${waiting.length ? `(${waiting.length}) ` : ""}sebridge console`;
  setHidden($("read-only"), !model.readOnly);
  setText($("user"), model.user);
}

function renderFilters() {
  const all = [...model.events.values()];
  const scaleSets = [...model.vms.values()].map((vm) => vm.scaleSet).concat(all.map((event) => event.scaleSet));
  options($("filter-scale-set"), scaleSets, model.filter.scaleSet);
  options($("filter-type"), all.map((event) => event.type), model.filter.type);
  options($("filter-status"), all.flatMap((event) => [event.status, event.approval]), model.filter.status);
  setHidden($("filter-clear"), !Object.values(model.filter).some(Boolean));
}

function options(select, values, chosen) {
  const wanted = [...new Set([...values, chosen])].filter((value) => value && value !== "none").sort();
  const known = [...select.options].slice(1).map((option) => option.value);
  if (wanted.join("\n") !== known.join("\n")) {
    select.replaceChildren(new Option("All", ""), ...wanted.map((value) => new Option(value, value)));
  }
  select.value = chosen;
}

function tick() {
  setText($("clock"), new Date(now()).toISOString().slice(11, 19));
  events.tick();
  timeline.tick();
  dialogs.tickApproval();
  if (heardAt && Date.now() - heardAt > SILENT_MS) showLink("lost");
}

function showLink(state) {
  const text = { wait: "connecting", live: "live", lost: "no connection to the console's server", broker: "broker unreachable" };
  setData($("link"), "state", state === "broker" ? "lost" : state);
  setText($("link-text"), text[state]);
  const problem = { lost: "What you see is old: the console's server does not answer.", broker: `What you see may be old: ${model.problem}` }[state] ?? "";
  setText($("problem"), problem);
  setHidden($("problem"), !problem);
}

function heard() {
  if (!heardAt) setTimeout(tick);
  heardAt = Date.now();
  showLink(model.problem ? "broker" : "live");
}

function connect() {
  source = new EventSource("/api/stream");
  source.addEventListener("snapshot", (message) => {
    replaceAll(JSON.parse(message.data));
    heard();
    schedule();
  });
  source.addEventListener("change", (message) => {
    const data = JSON.parse(message.data);
    announce(data);
    change(data);
    heard();
    schedule();
  });
  source.addEventListener("ping", (message) => {
    pulse(JSON.parse(message.data));
    heard();
  });
  source.onerror = () => {
    showLink("lost");
    if (source.readyState === EventSource.CLOSED) setTimeout(comeBack, RETRY_MS);
  };
}

// The server refused the stream: log in again, or try later.
async function comeBack() {
  try {
    const answer = await fetch("/", { redirect: "manual" });
    if (answer.type === "opaqueredirect") {
      location.assign("/login");
      return;
    }
  } catch {
    // not there yet
  }
  connect();
}

// For those who listen: new events and changed approvals, not every second.
function announce(data) {
  const words = data.events.map((event) => {
    const old = model.events.get(event.key);
    const what = `${event.type} of ${shorten(event.resources)}`;
    if (!old) return `New: ${what}${event.notBefore ? `, in ${spoken(Date.parse(event.notBefore) - now())}` : ""}`;
    if (old.status !== event.status || old.approval !== event.approval) return `${what}: ${events.stateText(event)}`;
    return "";
  });
  const text = words.filter(Boolean).slice(0, 3).join(". ");
  if (text) setText($("live"), text);
}

function filtersChanged() {
  model.filter.text = $("filter-text").value.trim();
  model.filter.scaleSet = $("filter-scale-set").value;
  model.filter.type = $("filter-type").value;
  model.filter.status = $("filter-status").value;
  schedule();
}

function start() {
  const handlers = { details: dialogs.openDetails, approve: dialogs.openApproval };
  events.start(handlers);
  timeline.start(handlers);
  dialogs.start();
  fleet.start(schedule);
  $("filters").addEventListener("input", filtersChanged);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("reset", () => {
    model.filter.vm = model.filter.vmStatus = "";
    setTimeout(filtersChanged);
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, dialog");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      $("filter-text").focus();
    }
  });
  connect();
  setInterval(tick, 1000);
}

start();
