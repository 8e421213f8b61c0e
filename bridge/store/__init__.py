"""The ledger and the outbox, on disk: see schema.sql for what is kept and promised."""

from bridge.store.rows import AcceptedRow, CommandRow, Confirmation, Draft, ParkedRow, PostState
from bridge.store.store import Store

__all__ = [
    "AcceptedRow",
    "CommandRow",
    "Confirmation",
    "Draft",
    "ParkedRow",
    "PostState",
    "Store",
]
