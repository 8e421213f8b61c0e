"""Names become topics only when they cannot mean anything else."""

import pytest
from hypothesis import given, settings
from paho.mqtt.client import topic_matches_sub

from bridge.core import topics
from tests.builders import ANY_TEXT

TEMPLATE = "sebridge/v1/{resource_group}/{vm_name}"


def test_fill_root_puts_the_names_in() -> None:
    """Both fields are replaced."""
    actual = topics.fill_root(TEMPLATE, resource_group="rg", vm_name="web_3")

    assert actual == "sebridge/v1/rg/web_3"


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a+", "a#b", "a\0", "a\n", "a\x7f"])
def test_fill_root_unsafe_name_raises_bad_topic(name: str) -> None:
    """A name with a meaning in topics is refused, never escaped away."""
    with pytest.raises(topics.BadTopic) as caught:
        topics.fill_root(TEMPLATE, resource_group="rg", vm_name=name)

    assert f"vm_name {name!r} cannot stand in a topic" in str(caught.value)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("", "does not make a topic name"),
        ("/a", "does not make a topic name"),
        ("$SYS/a", "does not make a topic name"),
        ("a/", "does not make a topic name"),
        ("a/+", "does not make a topic name"),
        ("a/#", "does not make a topic name"),
        ("a\0", "does not make a topic name"),
        ("a/{zone}", "has a field other than"),
        ("a/{vm_name", "has a field other than"),
    ],
)
def test_check_template_hopeless_template_raises_bad_topic(template: str, why: str) -> None:
    """A template that could never work is refused at the start."""
    with pytest.raises(topics.BadTopic) as caught:
        topics.check_template(template)

    assert why in str(caught.value)


@pytest.mark.parametrize("template", [TEMPLATE, "a", "{vm_name}", "a//b"])
def test_check_template_good_template_passes(template: str) -> None:
    """A template need not use both names."""
    topics.check_template(template)


def test_root_filter_covers_all_vms_or_one() -> None:
    """Without a name the filter takes every VM, with one every resource group."""
    assert topics.root_filter(TEMPLATE) == "sebridge/v1/+/+"
    assert topics.root_filter(TEMPLATE, vm_name="web_3") == "sebridge/v1/+/web_3"
    with pytest.raises(topics.BadTopic):
        topics.root_filter(TEMPLATE, vm_name="#")


def test_pending_escapes_the_event_id() -> None:
    """An EventId cannot add a level or a wildcard."""
    assert topics.pending("root", "A/+#") == "root/pending/A%2F%2B%23"


@pytest.mark.parametrize(
    ("topic", "prefix", "expected"),
    [
        ("sebridge/replies/1", "sebridge/", True),
        ("other/replies/1", "sebridge/", False),
        ("sebridge/replies/1", "", False),
        ("sebridge/+", "sebridge/", False),
        ("sebridge/#", "sebridge/", False),
        ("sebridge/\0", "sebridge/", False),
        ("sebridge/v1/rg/web_4/commands", "sebridge/", False),
        ("sebridge/v1/rg/web_4/events", "sebridge/", False),
        ("sebridge/v1/rg/web_4/outcomes", "sebridge/", False),
        ("sebridge/v1/rg/web_4/status", "sebridge/", False),
        ("sebridge/v1/rg/web_4/pending/602D", "sebridge/", False),
        ("sebridge/replies/commands/7", "sebridge/", True),
        ("sebridge/" + "a" * 65_526, "sebridge/", True),
        ("sebridge/" + "a" * 65_527, "sebridge/", False),
    ],
)
def test_is_allowed_reply_only_plain_names_below_the_prefix(
    topic: str, prefix: str, expected: bool
) -> None:
    """A command cannot make the agent publish wherever it likes."""
    assert topics.is_allowed_reply(topic, prefix) is expected


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_fill_root_any_names_make_a_plain_topic_or_raise(resource_group: str, vm_name: str) -> None:
    """Whatever Azure calls things, a root has four levels and the fleet's filter covers it."""
    try:
        root = topics.fill_root(TEMPLATE, resource_group=resource_group, vm_name=vm_name)
    except topics.BadTopic:
        return

    assert root.split("/") == ["sebridge", "v1", resource_group, vm_name]
    assert topic_matches_sub(topics.root_filter(TEMPLATE), root)
    assert topic_matches_sub(topics.root_filter(TEMPLATE, vm_name=vm_name), root)


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT.filter(bool), ANY_TEXT.filter(bool))
def test_pending_any_event_ids_get_a_level_of_their_own(one: str, other: str) -> None:
    """Two events never share a retained message, and none escapes from below `pending`."""
    topic = topics.pending("root", one)

    assert topic_matches_sub("root/pending/+", topic)
    assert not set("+#") & set(topic)
    assert (topic == topics.pending("root", other)) is (one == other)


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_is_allowed_reply_any_topic_stays_below_the_prefix(topic: str, prefix: str) -> None:
    """What is allowed starts with the prefix and is no filter."""
    for candidate in (topic, prefix + topic):
        if topics.is_allowed_reply(candidate, prefix):
            assert candidate.startswith(prefix)
            assert not set("+#\0") & set(candidate)
