// Text and elements. Strings from the wire only ever become text nodes.

export const $ = (id) => document.getElementById(id);

export function element(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

// Writing the same text again would still cost a layout.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setData(node, name, value) {
  if (node.dataset[name] !== value) node.dataset[name] = value;
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

const pad = (number) => String(number).padStart(2, "0");

// 14:32 below an hour, 2 h 05 below a day.
export function countdown(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 3600) return `${pad(Math.floor(seconds / 60))}:${pad(seconds % 60)}`;
  const hours = Math.floor(seconds / 3600);
  if (hours < 48) return `${hours} h ${pad(Math.floor((seconds % 3600) / 60))}`;
  return `${Math.floor(hours / 24)} d`;
}

export function spoken(milliseconds) {
  const minutes = Math.round(milliseconds / 60000);
  if (minutes < 1) return "less than a minute";
  return minutes === 1 ? "one minute" : `${minutes} minutes`;
}

export function ago(milliseconds) {
  const minutes = Math.floor(milliseconds / 60000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ago` : `${Math.floor(hours / 24)} d ago`;
}

export const clock = (iso) => (iso ? iso.slice(11, 19) : "");

export function moment(iso) {
  return iso ? `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC` : "";
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function shorten(names, room = 3) {
  if (names.length <= room) return names.join(", ");
  return `${names.slice(0, room).join(", ")} and ${names.length - room} more`;
}

// For a POSIX shell: everything between single quotes is literal.
export function shellQuote(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

export function approveCommand(event, reason) {
  if (!event.command) return "";
  return event.command + (reason ? ` --reason ${shellQuote(reason)}` : "");
}

// Put the children into this order, moving as few as possible.
export function arrange(parent, nodes) {
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it by hand"; // no clipboard without https or localhost
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}
