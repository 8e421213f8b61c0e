"""What a simulator can be started with, and what is refused with a reason."""

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.simulator.clock import ClockError, VirtualClock
from bridge.simulator.settings import (
    Settings,
    SettingsError,
    build_fleet,
    parse_duration_s,
    parse_instances,
    parse_listen,
)
from bridge.simulator.world import World

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT5M", 300), ("PT15M", 900), ("PT300S", 300), ("PT7M30S", 450), ("PT0H10M", 600)],
)
def test_terminate_notification_within_5_to_15_minutes(text: str, seconds: int) -> None:
    """notBeforeTimeout takes any value between 5 and 15 minutes in ISO 8601."""
    fleet = build_fleet(Settings(terminate_notification=text), "seed", NOON)

    assert fleet.terminate_notification_s == seconds


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"terminate_notification": "PT4M59S"}, "PT5M to PT15M"),
        ({"terminate_notification": "PT15M1S"}, "PT5M to PT15M"),
        ({"terminate_notification": "5 minutes"}, "ISO 8601"),
        ({"terminate_notification": "PT"}, "ISO 8601"),
        ({"terminate_notification": "PT5M", "spot": True}, "spot"),
        ({"terminate_notification": "PT5M", "scenario": "spot-eviction"}, "spot"),
        ({"scale_set": ""}, "scale set"),
        ({"scale_set": "a/b"}, "scale set"),
        ({"policy": "Oldest"}, "NewestVM"),
        ({"scenario": "flood"}, "rolling-reboot"),
        ({"speed": -1.0}, "speed"),
        ({"speed": float("nan")}, "speed"),
        ({"speed": float("inf")}, "speed"),
        ({"shorten": 0.5}, "shorten"),
        ({"shorten": float("nan")}, "shorten"),
        ({"first_call_delay_s": -1.0}, "first-call"),
        ({"requests_per_s_max": -1}, "requests"),
        ({"instances": ""}, "instance id"),
        ({"instances": "1:"}, "instance id"),
        ({"instances": "1:3,x"}, "'x'"),
        ({"instances": "1:3;2:3"}, "twice"),
        ({"instances": "a b:3"}, "zone"),
        ({"instances": ",".join(str(n) for n in range(1001))}, "1000"),
    ],
)
def test_bad_settings_are_refused_with_a_reason(values: dict[str, Any], message: str) -> None:
    """Each value that cannot be is named in the error."""
    with pytest.raises(SettingsError, match=message):
        build_fleet(Settings(**values), "seed", NOON)


def test_instances_by_zone_become_vms_in_the_order_of_ids() -> None:
    """A VM is called SCALESET_ID and lives in the zone it is listed under."""
    vms = parse_instances("1:3, 4; 2:2", "web")

    assert [(vm.name, vm.zone) for vm in vms] == [("web_2", "2"), ("web_3", "1"), ("web_4", "1")]


@given(st.text(alphabet="0123456789:;, abPTMS.-", max_size=30))
def test_parsers_understand_or_refuse_any_text(text: str) -> None:
    """No text makes a parser fail in another way than its own."""
    for parse in (parse_duration_s, parse_listen, lambda value: parse_instances(value, "web")):
        with contextlib.suppress(SettingsError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_listen_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    """IPv6 stands in brackets, and port 0 is allowed."""
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["", "8080", ":8080", "host:", "host:x", "host:70000", "host:-1"])
def test_listen_without_host_or_port_is_refused(text: str) -> None:
    """Half an address is none."""
    with pytest.raises(SettingsError, match="listen"):
        parse_listen(text)


def test_clock_runs_at_its_speed_and_keeps_what_has_passed() -> None:
    """A change of speed does not change the past."""
    real = [100.0]
    clock = VirtualClock(NOON, 60, lambda: real[0])
    real[0] += 10
    clock.set_speed(0)
    real[0] += 1000
    clock.advance(5)

    assert (clock.now() - NOON).total_seconds() == 605


def test_clock_stands_at_the_end_of_the_calendar() -> None:
    """However fast and long, time ends inside what dates can hold."""
    real = [0.0]
    clock = VirtualClock(NOON, 100_000, lambda: real[0])
    real[0] += 1e12

    assert clock.now().year == 9000
    with pytest.raises(ClockError):
        clock.advance(1)


def test_clock_without_a_time_zone_is_refused() -> None:
    """All times are aware."""
    with pytest.raises(ClockError, match="time zone"):
        VirtualClock(NOON.replace(tzinfo=None), 1, lambda: 0.0)


def test_rate_is_five_in_any_second_of_real_time() -> None:
    """The window slides: five are let in, and another one a second after the first."""
    real = [0.0]
    world = World(Settings(speed=1000.0), monotonic=lambda: real[0])
    vm = world.fleet.vms[0]
    admitted = []
    for at_s in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.99, 1.0, 1.05, 1.1):
        real[0] = at_s
        admitted.append(world.admit(vm))

    assert admitted == [True] * 5 + [False, False, True, False, True]


def test_event_ids_never_come_back_in_another_run() -> None:
    """An agent remembers EventIds for ever, so two runs must not share any."""
    assert World(Settings()).fleet.seed != World(Settings()).fleet.seed
