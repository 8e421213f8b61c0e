"""What the GETs and the one POST to IMDS have in common: paths, our name, readable excerpts."""

from bridge.version import VERSION

SCHEDULED_EVENTS = "/metadata/scheduledevents"
INSTANCE = "/metadata/instance"
USER_AGENT = f"sebridge/{VERSION}"


def excerpt(raw: bytes, *, characters_max: int = 200) -> str:
    """What a person can read of a body, on one line."""
    text = raw[: characters_max * 8].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[:characters_max]
