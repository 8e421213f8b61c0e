"""Topic names. Names from Azure never reach a topic unchecked: `+`, `#` and `/` mean something."""

import re
from urllib.parse import quote

_FIELD = re.compile(r"\{(resource_group|vm_name)\}")
_UNSAFE = re.compile(r"[+#/\x00-\x1f\x7f]")
# Where agents speak and listen: an answer sent there would pass for something else.
_OWN = re.compile(r"/(commands|events|outcomes|status|pending/[^/]*)$")
# MQTT's own limit: the length of a string has two bytes.
TOPIC_BYTES_MAX = 65535


class BadTopic(ValueError):
    """A topic that cannot be used; the message says which and why."""


def fill_root(template: str, *, resource_group: str, vm_name: str) -> str:
    """`topic_root` with the names of this VM."""
    return _fill(template, {"resource_group": resource_group, "vm_name": vm_name})


def root_filter(template: str, *, vm_name: str = "") -> str:
    """The subscription that covers every VM's root, or one VM's in every resource group."""
    names = {"resource_group": "+", "vm_name": _checked("vm_name", vm_name) if vm_name else "+"}
    return _FIELD.sub(lambda match: names[match[1]], template)


def pending(root: str, event_id: str) -> str:
    return f"{root}/pending/{quote(event_id, safe='')}"


def is_allowed_reply(topic: str, prefix: str) -> bool:
    """A Response Topic is used only below the allowed prefix, and only if it is a plain name."""
    if not prefix or not topic.startswith(prefix) or _OWN.search(topic):
        return False
    return not re.search(r"[+#\x00-\x1f\x7f]", topic) and len(topic.encode()) <= TOPIC_BYTES_MAX


def check_template(template: str) -> None:
    """Raise `BadTopic` for a `topic_root` that could never work."""
    _fill(template, {"resource_group": "group", "vm_name": "vm"})


def _fill(template: str, names: dict[str, str]) -> str:
    root = _FIELD.sub(lambda match: _checked(match[1], names[match[1]]), template)
    if "{" in root or "}" in root:
        raise BadTopic(f"topic_root {template!r} has a field other than resource_group and vm_name")
    if not root or root[0] in "/$" or root[-1] == "/" or re.search(r"[+#\x00-\x1f\x7f]", root):
        raise BadTopic(f"topic_root {template!r} does not make a topic name: {root!r}")
    return root


def _checked(field: str, name: str) -> str:
    if not name or _UNSAFE.search(name):
        raise BadTopic(f"{field} {name!r} cannot stand in a topic: it is empty or holds + # or /")
    return name
