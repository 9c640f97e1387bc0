"""What verification reports, and the sentences that several comparisons share."""

from __future__ import annotations

from typing import Literal

import msgspec

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.ports.sink import Capabilities

Level = Literal["wrong", "unchecked", "info"]
About = Literal["receipts", "windows", "ledger", "table", "topic", "messages", "registry"]

EXACTLY = Capabilities()
ALLOWED = "The sink's delivery_guarantee allows it."
"""The advice where rows are lost, or are in the table twice, and the spec asked for that."""
COMPACTED = "Kafka compacts the topic: of each key it keeps the last message."
"""The advice where rows are gone because later ones replaced them."""
REPORT = "This is a bug: keep the table as it is and report it."


class Finding(msgspec.Struct, frozen=True):
    """One result of verification.

    `wrong` asks for a person; `unchecked` could not be looked at; `info` is for knowing.
    """

    level: Level
    about: About
    what: str
    do: str = ""
    window: str | None = None


def failure(
    error: RefusedError | UnreachableError,
    about: About,
    window: str | None = None,
    prefix: str = "",
) -> Finding:
    """The finding for an error: `unchecked` if nothing answered, else `wrong`."""
    level: Level = "unchecked" if isinstance(error, UnreachableError) else "wrong"
    return Finding(level, about, prefix + error.what, error.do, window)


def read_again(key: str, capabilities: Capabilities) -> str:
    """The advice for a window whose rows are not as they were committed."""
    if capabilities.replaces:
        return f"windrow replay SPEC --window {key} reads the window again from the same offsets."
    return (
        "Nothing can replace it: to have the window again, begin a pipeline with another id and"
        " another place for its rows."
    )
