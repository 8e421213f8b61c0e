"""The other end of the broker, for operators: `watch` and `approve`.

Whatever comes from the broker is untrusted: it is read as a notice or shown as escaped text, and a
command goes only to the topic of the agent that told of the event.
"""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import msgspec

from bridge.core import approval_command, notices
from bridge.core.notices import EventNotice, Notice, OutcomeNotice, StatusNotice
from bridge.core.plain_text import printable
from bridge.errors import BridgeError
from bridge.feeds import Feed, Received

APPROVED, REJECTED, NO_OUTCOME = 0, 3, 4
SOURCE = "/sebridge/cli"
# How long retained messages may take to arrive after a subscription: as long as whoever asks is
# willing to wait, within these.
_FIND_S_MIN, _FIND_S_MAX = 1.0, 5.0
# The agent refuses at the command's expiry; its answer needs a moment to arrive.
_ANSWER_S = 2.0
_LOOK_S = 0.05


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    event_id: str
    vm: str = ""
    key: str = ""
    reason: str = ""
    timeout_s: float = 60.0


class _Found(msgspec.Struct, frozen=True):
    agent: str
    notice: EventNotice


async def watch(feed: Feed, *, as_json: bool) -> None:
    """Print events, outcomes and status changes of every VM, until interrupted.

    As JSON everything is printed, heartbeats and probes, too: programs choose for themselves.
    """
    statuses: dict[str, str] = {}
    async with _running(feed):
        complaining = asyncio.create_task(_complain(feed))
        try:
            async for received in feed.received():
                if received.channel == "pending" or not received.payload:
                    continue
                if as_json:
                    print(_text(received.payload), flush=True)
                elif _is_news(received, statuses):
                    print(line(received), flush=True)
        finally:
            complaining.cancel()


async def approve(
    feed: Feed, request: ApprovalRequest, sign: Callable[[bytes], bytes] = bytes
) -> int:
    """Find the event, send the command to the VM that may approve it, wait for the outcome."""
    async with _running(feed):
        found = await _find(feed, request)
        command_id = str(uuid.uuid4())
        key = request.key or command_id
        command = approval_command.encode(
            found.notice,
            command_id=command_id,
            source=SOURCE,
            key=key,
            reason=request.reason,
            now=datetime.now(UTC),
            valid_s=request.timeout_s,
        )
        await feed.send(found.notice.approval.topic, found.notice.vm.name, sign(command))
        return await _outcome(feed, found, {command_id, key}, request.timeout_s)


@asynccontextmanager
async def _running(feed: Feed) -> AsyncIterator[None]:
    """Connected, or BridgeError with the reason."""
    task = asyncio.create_task(feed.run(), name="feed")
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(feed.settle_s):
                while feed.problem:  # noqa: ASYNC110 - the port offers a property, on purpose
                    await asyncio.sleep(_LOOK_S)
        if feed.problem:
            raise BridgeError(feed.problem)
        yield
    finally:
        await feed.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _complain(feed: Feed) -> None:
    last = ""
    while True:
        problem = feed.problem
        if problem != last:
            print(f"sebridge: {problem or 'connected again'}", file=sys.stderr, flush=True)
        last = problem
        await asyncio.sleep(_LOOK_S)


async def _find(feed: Feed, request: ApprovalRequest) -> _Found:
    """The event as its leader tells of it; as another VM does if the leader is silent."""
    found: _Found | None = None
    try:
        async with asyncio.timeout(min(_FIND_S_MAX, max(_FIND_S_MIN, request.timeout_s))):
            async for received in feed.received():
                notice = _wanted(received, request)
                if notice is not None:
                    found = _Found(received.agent, notice)
                    if notice.leader or request.vm:
                        break
    except TimeoutError:
        pass
    if found is None:
        where = f" for {request.vm}" if request.vm else ""
        raise BridgeError(f"no pending event {request.event_id}{where}: see `sebridge watch`")
    return found


def _wanted(received: Received, request: ApprovalRequest) -> EventNotice | None:
    notice = notices.decode(received.payload)
    data = notice.data if notice else None
    if notice is None or not isinstance(data, EventNotice) or data.is_over:
        return None
    if data.event.event_id.casefold() != request.event_id.casefold():
        return None
    if request.vm and data.vm.name.casefold() != request.vm.casefold():
        return None
    return data if notices.may_be_sent(received.agent, notice) else None


async def _outcome(feed: Feed, found: _Found, names: set[str], timeout_s: float) -> int:
    """Approved and confirmed are fine; a doubt may still be resolved until the time is up."""
    try:
        async with asyncio.timeout(timeout_s + _ANSWER_S):
            async for received in feed.received():
                outcome = _answer(received, found.agent, names)
                if outcome is None:
                    continue
                print(_verdict(outcome, found.notice), flush=True)
                if outcome.status != "in-doubt":
                    return REJECTED if outcome.status == "rejected" else APPROVED
    except TimeoutError:
        pass
    print(f"no outcome within {timeout_s:g} s: see `sebridge watch`", file=sys.stderr)
    return NO_OUTCOME


def _answer(received: Received, agent: str, names: set[str]) -> OutcomeNotice | None:
    """An answer repeated for an old key carries the old command's id: the key tells, too."""
    notice = notices.decode(received.payload) if received.agent == agent else None
    if notice is None or not isinstance(notice.data, OutcomeNotice):
        return None
    outcome = notice.data
    is_ours = not names.isdisjoint({notice.attributes.causationid, outcome.idempotency_key} - {""})
    return outcome if is_ours else None


def _verdict(outcome: OutcomeNotice, notice: EventNotice) -> str:
    """What became of it, in one line for the person who asked."""
    scheduled_event = notice.event
    vms = ", ".join(scheduled_event.resources) or notice.vm.name
    words = [f"{outcome.status:<9} {scheduled_event.event_type} of {vms}"]
    why = ": ".join(word for word in (outcome.reason, _detail(outcome)) if word)
    words += [f"({why})"] if why else []
    words += [f"(rule {outcome.rule!r})"] if outcome.reason == "policy-denied" else []
    words += ["(an earlier answer, repeated)"] if outcome.replay else []
    if outcome.waiting_on:
        words.append(f"(waits for the approval of {', '.join(outcome.waiting_on)})")
    return printable("  ".join(words))


def _detail(outcome: OutcomeNotice) -> str:
    """What IMDS says to an approval is "OK", which tells nobody anything."""
    return "" if outcome.status == "approved" else outcome.detail


def _is_news(received: Received, statuses: dict[str, str]) -> bool:
    """A heartbeat that repeats the agent's last status is none."""
    notice = notices.decode(received.payload)
    if notice is None or not isinstance(notice.data, StatusNotice):
        return True
    before = statuses.get(received.agent)
    statuses[received.agent] = notice.data.status
    return before != notice.data.status


def line(received: Received) -> str:
    """One message in one line; what cannot be read is shown as it is."""
    notice = notices.decode(received.payload)
    attributes = notice.attributes if notice else notices.unknown(received.payload)
    if attributes is None:
        return _text(received.payload)
    kind = attributes.type.removeprefix(notices.TYPE_PREFIX).removesuffix(".v1")
    who, what = _who_and_what(notice) if notice else (attributes.partitionkey, "")
    return printable(f"{attributes.time}  {who:<16} {kind:<20} {what}".rstrip())


def _who_and_what(notice: Notice) -> tuple[str, str]:
    match notice.data:
        case EventNotice() as data:
            what = f"{data.event.event_type:<9} {data.event.event_id}"
            return data.vm.name, what + (
                f"  not before {data.not_before}" if data.not_before else ""
            )
        case OutcomeNotice() as data:
            words = (data.event_id, data.reason, _detail(data), data.requested_by)
            who = notice.attributes.partitionkey
            return who, "  ".join(word for word in words if word)
        case StatusNotice() as data:
            return data.vm.name, data.status


def _text(payload: bytes) -> str:
    return printable(payload.decode(errors="replace"))
