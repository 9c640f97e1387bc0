"""What verification has to say: one value for each thing, from whatever was compared."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["wrong", "unchecked", "info"]
About = Literal["receipts", "windows", "ledger", "table", "topic", "messages", "registry"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that verification has to say. `wrong` asks for a person; `unchecked` could not be looked at; `info` is for knowing."""

    level: Level
    about: About
    what: str
    do: str = ""
    window: str | None = None
