"""Text from outside, for terminals and logs: nothing in it may move a cursor or forge a line."""


def printable(text: str) -> str:
    """The text as it is, or escaped as a whole if any of it is not printable."""
    return text if text.isprintable() else ascii(text)[1:-1]
