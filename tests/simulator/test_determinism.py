"""Whatever is done to a fleet: same actions, same fleet; same incarnation, same content."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from bridge.simulator import documents
from bridge.simulator import fleet as fleets
from bridge.simulator.model import Fleet, FleetError, Plan
from bridge.simulator.settings import Settings, build_fleet

ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 1200),
        st.sampled_from(
            ["Freeze", "Reboot", "Preempt", "Terminate", "scale-in", "approve", "cancel"]
        ),
        st.integers(1, 11),
    ),
    max_size=15,
)


def act(fleet: Fleet, action: str, number: int, now: datetime) -> Fleet:
    """One of the drawn actions; what is not possible is left out."""
    try:
        if action == "scale-in":
            return fleets.scale_in(fleet, 1, now)[0]
        if action in ("approve", "cancel"):
            pending = fleets.advance(fleet, now).pending
            if not pending:
                return fleet
            event_id = pending[number % len(pending)].event_id
            if action == "cancel":
                return fleets.cancel(fleet, event_id, now)
            return fleets.approve(fleet, fleet.vms[0], [event_id], now)
        return fleets.schedule(fleet, Plan(event_type=action, resources=(f"web_{number}",)), now)[0]
    except FleetError:
        return fleet


@given(actions=ACTIONS, looks=st.integers(1, 7))
def test_advance_is_the_same_however_often_anybody_looks(
    actions: list[tuple[int, str, int]], looks: int
) -> None:
    """The fleet depends on what was done and when, never on who looked in between."""
    start = datetime.fromisoformat("2026-11-18T12:00:00+00:00")
    watched = unwatched = build_fleet(Settings(), "seed", start)
    now = start
    for wait_s, action, number in [*actions, (3600, "Freeze", 1)]:
        for look in range(1, looks + 1):
            watched = fleets.advance(watched, now + timedelta(seconds=wait_s * look / looks))
        now += timedelta(seconds=wait_s)
        watched = act(watched, action, number, now)
        unwatched = act(unwatched, action, number, now)

        assert fleets.advance(unwatched, now) == fleets.advance(watched, now)


@given(actions=ACTIONS)
def test_incarnation_same_number_means_same_content(actions: list[tuple[int, str, int]]) -> None:
    """The number only grows, grows with every change, and never stands for two contents."""
    now = datetime.fromisoformat("2026-11-18T12:00:00+00:00")
    fleet = build_fleet(Settings(), "seed", now)
    before = documents.scheduled_events(fleet, fleet.vms[0], "2020-07-01")
    for wait_s, action, number in actions:
        now += timedelta(seconds=wait_s)
        fleet = act(fleet, action, number, now)
        after = documents.scheduled_events(fleet, fleet.vms[0], "2020-07-01")

        assert before["DocumentIncarnation"] <= after["DocumentIncarnation"]
        if before["Events"] != after["Events"]:
            assert before["DocumentIncarnation"] < after["DocumentIncarnation"]
        if before["DocumentIncarnation"] == after["DocumentIncarnation"]:
            assert before["Events"] == after["Events"]
        before = after
