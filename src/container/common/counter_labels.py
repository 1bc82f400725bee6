"""Labels of counters that say something about a client: bounded, and plain text whatever the client says of itself."""

from __future__ import annotations

MAX_LABEL_LENGTH = 380  # bytes of a counter's record (upstream: CountersReader.MAX_LABEL_LENGTH)


def bounded_label(name: str, client_text: str, rest: str) -> str:
    """A label ``<name><client_text><rest>`` of at most 380 characters.

    ``client_text`` is the client's own description. It is cut to fit, and characters other than printable ASCII become
    question marks.
    """
    room = max(0, MAX_LABEL_LENGTH - len(name) - len(rest))
    return name + "".join(each if " " <= each <= "~" else "?" for each in client_text[:room]) + rest
