"""What verification has to say: one value for each thing, from whatever was compared."""

from __future__ import annotations

from typing import Literal

import msgspec

from windrow.ingest.ports.sink import Capabilities

Level = Literal["wrong", "unchecked", "info"]
About = Literal["receipts", "windows", "ledger", "table", "topic", "messages", "registry"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that verification has to say.

    `wrong` asks for a person; `unchecked` could not be looked at; `info` is for knowing.
    """

    level: Level
    about: About
    what: str
    do: str = ""
    window: str | None = None


def read_again(key: str, capabilities: Capabilities) -> str:
    """What brings a window's rows back that are not as they were committed."""
    if capabilities.replaces:
        return f"windrow replay SPEC --window {key} reads the window again from the same offsets."
    return (
        "Nothing can replace it: to have the window again, begin a pipeline with another id and"
        " another place for its rows."
    )
