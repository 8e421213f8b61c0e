"""What must hold after any schedule, judged from outside: IMDS's book, the consumer's, the ledger."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.counting_imds import posts
from tests.crash.scripted import published

ANSWERS = {"approved", "rejected", "in-doubt"}


def check(folder: Path, keys: set[str]) -> None:
    events = published(folder)
    _check_posts(folder, events)
    _check_answers(events, keys)
    _check_transitions(events)
    _check_ids(folder)


def _check_posts(folder: Path, events: list[dict[str, Any]]) -> None:
    """At most one POST that may have counted; the answer claims neither more nor less."""
    seen = posts(folder)
    counting = [line for line in seen if line.endswith("counts")]
    assert len(counting) <= 1, seen
    answers = {e["data"]["status"] for e in events if e["data"].get("status") in ANSWERS}
    if "approved" in answers:
        assert counting, "approved, and IMDS saw no POST"
    db = sqlite3.connect(f"file:{folder}/state.db?mode=ro", uri=True)
    counted = db.execute("SELECT count(*) FROM posts WHERE counted = 1 AND waived = 0").fetchone()
    states = [row[0] for row in db.execute("SELECT state FROM approvals")]
    db.close()
    assert counted[0] <= 1
    assert len(counting) <= counted[0], "IMDS may have acted on what the ledger calls undone"
    assert all(state in {"confirmed", "approved", "in-doubt", "rejected"} for state in states)


def _check_answers(events: list[dict[str, Any]], keys: set[str]) -> None:
    """Every command has exactly one answer, under one id; replays repeat it."""
    answers: dict[str, set[str]] = {}
    for event in events:
        if event["data"].get("status") in ANSWERS:
            answers.setdefault(event["data"]["idempotencyKey"], set()).add(event["id"])
    assert {key: len(ids) for key, ids in answers.items()} == dict.fromkeys(answers, 1)
    named = {key for key in answers if not key.startswith("malformed:")}
    assert named == keys, answers
    assert sum(key.startswith("malformed:") for key in answers) == 1


def _check_transitions(events: list[dict[str, Any]]) -> None:
    unique = {e["id"]: e["data"]["transition"] for e in events if "transition" in e["data"]}
    assert list(unique.values()) in (
        ["scheduled", "started", "completed"],
        ["scheduled", "completed"],
        ["scheduled", "ended"],
    ), list(unique.values())


def _check_ids(folder: Path) -> None:
    """One id, one content; what is new comes in the order of its sequence."""
    known: dict[str, bytes] = {}
    newest = ""
    for line in (folder / "out.jsonl").read_bytes().split(b"\n"):
        if not line.endswith(b"}"):
            continue
        event = msgspec.json.decode(line)
        if event["data"].get("replay"):
            continue
        if known.setdefault(event["id"], line) is line:
            assert event["sequence"] > newest, event
            newest = event["sequence"]
        assert known[event["id"]] == line
