"""Notices: what agents publish is read, anything else is refused without an error."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.core import approval_command, commands, notices
from bridge.core.notices import EventNotice, OutcomeNotice, StatusNotice
from tests.support.fleet_messages import event, outcome, root_of, status, vm

WEB_3 = vm("web_3", zone="2")


def test_decode_event_takes_what_a_consumer_needs() -> None:
    """The scheduled event, who tells of it and how to answer."""
    notice = notices.decode(event(WEB_3, "E1", resources=("web_3", "web_4"), in_s=60))

    assert notice
    assert isinstance(notice.data, EventNotice)
    assert ("web_3", "web_4") == notice.data.event.resources
    assert ("web", "2") == (notice.data.vm.scale_set, notice.data.vm.zone)
    assert "2026-11-18T06:01:00.000Z" == notice.data.not_before
    assert notice.data.leader
    assert not notice.data.is_over
    assert "t0ken" == notice.data.approval.token


def test_decode_outcome_and_status() -> None:
    """The other two kinds have their own shapes."""
    answered = notices.decode(outcome(WEB_3, waiting_on=("E2",), http_status=200))
    said = notices.decode(status(WEB_3, "blind"))

    assert answered
    assert isinstance(answered.data, OutcomeNotice)
    assert (("E2",), 200) == (answered.data.waiting_on, answered.data.http_status)
    assert said
    assert isinstance(said.data, StatusNotice)
    assert "blind" == said.data.status


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b'{"specversion":"1.0"}',
        b'{"id":"1","source":"s","type":"io.sebridge.approve.v1","data":{}}',
        b'{"id":"1","source":"s","type":"io.sebridge.event.scheduled.v1","data":null}',
        b'{"id":"1","source":"s","type":"io.sebridge.agent.status.v1","data":{"status":1}}',
        b'{"id":"1","id":"2","source":"s","type":"io.sebridge.agent.status.v1"}',
        event(WEB_3, "E" * 600),
        event(WEB_3, "E1", Description="x" * 300_000),
        event(WEB_3, "E1", Resources="web_3"),
    ],
)
def test_decode_refuses_what_is_no_notice(payload: bytes) -> None:
    """Rubbish, other types, wrong shapes and excess are no notice."""
    assert notices.decode(payload) is None


@given(st.binary())
def test_decode_never_raises(payload: bytes) -> None:
    """Whatever the broker delivers."""
    notices.decode(payload)


@pytest.mark.parametrize(
    ("agent", "topic", "expected"),
    [
        (root_of("web_3"), f"{root_of('web_3')}/commands", True),
        (root_of("web_3"), f"{root_of('web_4')}/commands", False),
        (root_of("web_3"), "", False),
        (WEB_3.resource_id, "hub", True),
    ],
)
def test_may_be_sent_only_to_the_agents_own_topic(agent: str, topic: str, expected: bool) -> None:
    """A message that names another agent's topic is not answered."""
    notice = notices.decode(event(WEB_3, "E1", topic=topic))

    assert notice
    assert notices.may_be_sent(agent, notice) is expected


def test_approval_command_is_one_that_agents_understand() -> None:
    """It expects what was seen, repeats the token and has an end."""
    notice = notices.decode(event(WEB_3, "E1", resources=("web_3", "web_4"), event_type="Redeploy"))
    assert notice
    assert isinstance(notice.data, EventNotice)
    payload = approval_command.encode(
        notice.data,
        command_id="c1",
        source="/ops",
        key="k1",
        reason="drained",
        now=datetime(2026, 11, 18, 6, tzinfo=UTC),
        valid_s=60,
    )

    command = commands.decode(commands.Wire(payload=payload), bytes_max=65_536)

    assert isinstance(command, commands.Command)
    assert ("c1", "/ops", "k1", "E1") == (command.id, command.source, command.key, command.event_id)
    assert ("web_3", "Redeploy") == (command.vm, command.expect_type)
    assert ("web_3", "web_4") == command.expect_resources
    assert ("t0ken", "drained") == (command.token, command.reason)
    assert datetime(2026, 11, 18, 6, 1, tzinfo=UTC) == command.expires_at


def test_approval_command_without_a_token_sends_none() -> None:
    """An empty token would be a wrong one."""
    fields = msgspec.json.decode(event(WEB_3, "E1"))
    del fields["data"]["approval"]["token"]
    notice = notices.decode(msgspec.json.encode(fields))
    assert notice
    assert isinstance(notice.data, EventNotice)

    payload = approval_command.encode(
        notice.data,
        command_id="c1",
        source="/ops",
        key="k1",
        reason="",
        now=datetime(2026, 11, 18, 6, tzinfo=UTC),
        valid_s=60,
    )

    assert "token" not in msgspec.json.decode(payload)["data"]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"id": "1", "source": "/s", "type": "io.sebridge.agent.probe.v1"}', True),
        (b'{"id": "1", "source": "/s", "type": "io.sebridge.event.scheduled.v1"}', False),
        (b'{"id": "1", "source": "/s", "type": "com.example.v1"}', False),
        (b'{"id": 1}', False),
        (b"rubbish", False),
    ],
)
def test_unknown_is_ours_and_of_no_known_shape(payload: bytes, *, expected: bool) -> None:
    """A known type with bad data is not an unknown type, and foreign messages are not ours."""
    assert expected == (notices.unknown(payload) is not None)
