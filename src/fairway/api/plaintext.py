"""Text from elsewhere (a file, a server) as a terminal may show it."""


def on_one_line(text: str, *, at_most: int | None = None) -> str:
    """The text with everything escaped that would move a cursor or colour the rest, cut where it is too long."""
    if at_most is not None and len(text) > at_most:
        text = f"{text[: at_most - 3]}..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
