// What has happened since the console started, newest first.

import { $, arrange, clock, element, setText } from "./format.js";
import { historyMatches, model } from "./model.js";

const rows = new Map(); // number: row element

export function render() {
  const shown = model.history.filter(historyMatches);
  setText($("history-count"), String(shown.length));
  arrange($("history-rows"), shown.map((entry) => rows.get(entry.number) ?? make(entry)));
  const numbers = new Set(model.history.map((entry) => entry.number));
  for (const number of rows.keys()) if (!numbers.has(number)) rows.delete(number);
}

function make(entry) {
  const row = element("tr");
  const kind = element("td", "kind", entry.kind === "status" ? entry.text : entry.kind);
  kind.dataset.kind = entry.kind === "status" ? entry.text : entry.kind;
  const event = element("td", "id");
  event.append(element("span", "", entry.eventType ?? ""), element("span", "muted", entry.eventId ? ` ${entry.eventId.slice(0, 8)}` : ""));
  event.title = entry.eventId ?? "";
  const time = element("td", "when", clock(entry.time));
  time.title = entry.time;
  row.append(time, element("td", "", entry.vm), kind, event, element("td", "note", entry.kind === "status" ? "agent" : entry.text));
  rows.set(entry.number, row);
  return row;
}
