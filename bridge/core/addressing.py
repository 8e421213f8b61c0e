"""Whom a command is for, where one stream carries the commands of many VMs.

Read without a look at the rest: most commands of a shared hub are for others. Never raises; whether
what was found is a good command is decided elsewhere.
"""

import msgspec

from bridge.core.commands import Wire, is_binary


class _Data(msgspec.Struct, frozen=True):
    vm: str | None = None


class _Envelope(msgspec.Struct, frozen=True):
    data: _Data


# Strings that are not UTF-8 come out of these as UnicodeDecodeError, which is no MsgspecError.
_binary = msgspec.json.Decoder(_Data)
_structured = msgspec.json.Decoder(_Envelope)


def addressee(wire: Wire, *, bytes_max: int) -> str:
    """The VM that `data.vm` names; empty when it names none, or cannot be read."""
    if len(wire.payload) > bytes_max:
        return ""
    try:
        if is_binary(wire):
            return _binary.decode(wire.payload).vm or ""
        return _structured.decode(wire.payload).data.vm or ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
