"""Bytes become a whole document or none."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core.document import (
    DESCRIPTION_CHARS_MAX,
    DOCUMENT_BYTES_MAX,
    Document,
    MalformedDocument,
    ScheduledEvent,
    decode,
    decode_not_before,
)
from tests.builders import ANY_TEXT, PRINTABLE, document, scheduled_event

AZURE = {
    "EventId": "602d9444-d2cd-49c7-8624-8643e7171297",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": ["WEB_3", "web_4"],
    "EventStatus": "Scheduled",
    "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
    "Description": "Host maintenance.",
    "EventSource": "Platform",
    "DurationInSeconds": 5,
}


def encode(*entries: object, incarnation: object = 1) -> bytes:
    return msgspec.json.encode({"DocumentIncarnation": incarnation, "Events": entries})


def decode_one(**fields: Any) -> ScheduledEvent:
    return decode(encode({"EventId": "a", **fields})).scheduled_events[0]


def test_decode_azure_sample_gives_every_field() -> None:
    """Every field of Azure's reference arrives, beside the entry itself."""
    expected = Document(
        incarnation=1,
        scheduled_events=(
            ScheduledEvent(
                event_id="602d9444-d2cd-49c7-8624-8643e7171297",
                event_type="Reboot",
                resource_type="VirtualMachine",
                resources=("WEB_3", "web_4"),
                event_status="Scheduled",
                not_before=datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC),
                description="Host maintenance.",
                event_source="Platform",
                duration_in_seconds=5,
                raw=AZURE,
            ),
        ),
    )

    assert decode(encode(AZURE)) == expected


def test_decode_no_events_gives_an_empty_document() -> None:
    """An empty list is a document: nothing is pending."""
    assert decode(b' {"DocumentIncarnation":0,"Events":[],"New":1} ') == document(incarnation=0)


def test_decode_bare_event_gets_neutral_values() -> None:
    """Fields of newer api-versions are optional, and unknown ones stay in raw."""
    raw = {"EventId": "a", "Future": [1]}

    assert decode(encode(raw)).scheduled_events == (ScheduledEvent(event_id="a", raw=raw),)


def test_decode_wrong_types_are_left_out_but_kept_in_raw() -> None:
    """A field of another type does not hide the event."""
    raw = {
        "EventId": "a",
        "EventType": 1,
        "Resources": "web_3",
        "NotBefore": 5,
        "Description": None,
        "DurationInSeconds": True,
    }

    assert decode(encode(raw)).scheduled_events == (ScheduledEvent(event_id="a", raw=raw),)


def test_decode_resources_keep_the_names_only() -> None:
    """Entries that are not names are dropped from Resources."""
    assert decode_one(Resources=["a", 1, None, "b"]).resources == ("a", "b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (-1, -1),
        ("30", 30),
        (" -1 ", -1),
        (" " * 24 + "5", 5),
        ("--5", None),
        ("-", None),
        ("", None),
        ("9" * 19, None),
        ("\u0663", None),
        (1.5, None),
        (None, None),
    ],
)
def test_decode_duration_takes_numbers_and_their_text(value: object, expected: int | None) -> None:
    """Older services wrote the duration as text; nonsense is no duration."""
    assert decode_one(DurationInSeconds=value).duration_in_seconds == expected


def test_decode_long_description_is_cut_in_both_places() -> None:
    """A novel does not reach the broker."""
    event = decode_one(Description="x" * (DESCRIPTION_CHARS_MAX + 1))

    assert len(event.description) == DESCRIPTION_CHARS_MAX
    assert event.raw["Description"] == event.description


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b"<html>", "not a JSON document"),
        (b"[]", "not a JSON document: expected an object"),
        (b"{" + b" " * DOCUMENT_BYTES_MAX + b"}", "more than the"),
        (b'{"DocumentIncarnation":1}', "Events is missing or not a list"),
        (b'{"DocumentIncarnation":1,"Events":{}}', "Events is missing or not a list"),
        (b'{"Events":[]}', "DocumentIncarnation is not a counter: 'None'"),
        (encode(incarnation=True), "DocumentIncarnation is not a counter: 'True'"),
        (encode(incarnation="1"), "DocumentIncarnation is not a counter: '1'"),
        (encode(incarnation=-1), "DocumentIncarnation is not a counter: '-1'"),
        (encode(incarnation=2**63), "out of range"),
        (encode(AZURE, 3), "Events[1] is not an object"),
        (encode({}), "Events[0].EventId is missing"),
        (encode({"EventId": 1}), "Events[0].EventId is missing"),
        (encode({"EventId": " "}), "Events[0].EventId is missing"),
        (encode({"EventId": "x" * 129}), "Events[0].EventId is missing"),
        (encode({"EventId": "a\n"}), "Events[0].EventId holds control characters"),
        (encode({"EventId": "a"}, {"EventId": "A"}), "EventId 'A' stands there twice"),
        (encode(AZURE)[:-1], "not a JSON document"),
    ],
)
def test_decode_bad_document_is_refused_as_a_whole(raw: bytes, why: str) -> None:
    """One bad entry refuses all: leaving it out would look like its end."""
    with pytest.raises(MalformedDocument) as caught:
        decode(raw)

    assert why in str(caught.value)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*AZURE, "Future"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(max_size=5)),
    )
)
def test_decode_any_entry_raises_nothing_else(entry: dict[str, Any]) -> None:
    """Any entry gives a document or `MalformedDocument`."""
    try:
        actual = decode(encode({"EventId": "a"} | entry))
    except MalformedDocument:
        return

    assert len(actual.scheduled_events) == 1


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_decode_any_bytes_raise_nothing_else(raw: bytes) -> None:
    """Bytes from anywhere are refused in one way only: no rubbish is a document."""
    with pytest.raises(MalformedDocument):
        decode(raw)


entries: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"EventId": st.text(PRINTABLE, min_size=1, max_size=12).filter(str.strip)},
    optional={
        "EventType": ANY_TEXT,
        "EventStatus": ANY_TEXT,
        "EventSource": ANY_TEXT,
        "Resources": st.lists(ANY_TEXT, max_size=3),
        "DurationInSeconds": st.integers(-1, 10**6),
        "NotBefore": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    },
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**63 - 1),
    st.lists(entries, max_size=4, unique_by=lambda entry: entry["EventId"].casefold()),
)
def test_decode_any_good_document_keeps_everything(
    incarnation: int, written: list[dict[str, Any]]
) -> None:
    """Values come out as they went in, in order, beside the raw entry."""
    actual = decode(encode(*written, incarnation=incarnation))

    assert actual.incarnation == incarnation
    assert [event.raw for event in actual.scheduled_events] == written
    for event, entry in zip(actual.scheduled_events, written, strict=True):
        assert actual.find(entry["EventId"]) == event
        assert event.event_id == entry["EventId"]
        assert event.event_type == entry.get("EventType", "")
        assert event.event_status == entry.get("EventStatus", "")
        assert event.event_source == entry.get("EventSource", "")
        assert list(event.resources) == entry.get("Resources", [])
        assert event.duration_in_seconds == entry.get("DurationInSeconds")
        not_before = event.not_before.isoformat() if event.not_before else None
        assert not_before == entry.get("NotBefore")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(encode(AZURE)) - 1))
def test_decode_truncated_document_is_refused(length: int) -> None:
    """No beginning of a document is a document."""
    with pytest.raises(MalformedDocument):
        decode(encode(AZURE)[:length])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon, 19 Sep 2016 18:29:47 GMT", datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)),
        ("Fri, 19 Sep 2016 18:29:47 GMT", datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)),
        ("Mon, 19 Sep 2016 18:29:47 -0000", datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)),
        ("2016-09-19T18:29:47Z", datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)),
        ("2016-09-19T20:29:47+02:00", datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)),
        ("2016-09-19T18:29:47", datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)),
        ("0001-01-01T00:00:00+23:00", None),
        ("soon", None),
        ("", None),
        (None, None),
        (5, None),
    ],
)
def test_decode_not_before_reads_both_forms(text: object, expected: datetime | None) -> None:
    """RFC 1123 and ISO 8601 are read as UTC; anything else is no time."""
    assert decode_not_before(text) == expected


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_decode_not_before_any_text_is_a_utc_time_or_none(text: str) -> None:
    """No text raises."""
    moment = decode_not_before(text)

    assert moment is None or moment.tzinfo is UTC


@settings(max_examples=200, deadline=None)
@given(
    st.from_regex(
        r"(Mon|Xyz), [0-3][0-9] (Jan|Feb|Dec|Mrz) [0-2][0-9]{3} [0-2][0-9]:[0-6][0-9]:[0-6][0-9] GMT",
        fullmatch=True,
    )
)
def test_decode_not_before_reads_the_usual_form_as_the_library_does(text: str) -> None:
    """The quick way is a short cut, not another opinion."""
    try:
        expected = parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        expected = None

    assert decode_not_before(text) == expected


def test_names_compares_whole_names_in_any_case() -> None:
    """`web_1` does not concern `web_10`."""
    event = scheduled_event(resources=("WEB_10",))

    assert [event.names(name) for name in ("web_10", "web_1", "")] == [True, False, False]


def test_find_compares_ids_in_any_case() -> None:
    """Azure's samples show EventIds in both cases."""
    event = scheduled_event(event_id="AB")

    assert document(event).find("ab") is event
    assert document(event).find("a") is None


def test_status_flags_know_the_two_statuses() -> None:
    """A status that is new is neither of the two."""
    statuses = ("Scheduled", "Started", "Paused")

    events = [scheduled_event(event_status=status) for status in statuses]

    assert [(e.is_scheduled, e.is_started) for e in events] == [
        (True, False),
        (False, True),
        (False, False),
    ]
