"""The findings of verification, and the sentences that several comparisons share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.ports.sink import Capabilities

Level = Literal["wrong", "unchecked", "info"]
About = Literal["receipts", "windows", "ledger", "table", "topic", "messages", "registry"]

EXACTLY = Capabilities()
ALLOWED = "The sink's delivery_guarantee allows it."
"""The advice if rows are lost, or are in the table twice, and the spec allows that."""
REPORT = "This is a bug: keep the table as it is and report it."


class Finding(msgspec.Struct, frozen=True):
    """One result of verification.

    `wrong` needs a person; `unchecked` means that something couldn't be reached.
    """

    level: Level
    about: About
    message: str = msgspec.field(name="what")
    advice: str = msgspec.field(name="do", default="")
    window: str | None = None


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if anything is wrong, 3 if something couldn't be checked, else 0."""
    levels = {finding.level for finding in findings}
    if "wrong" in levels:
        return RefusedError.exit_code
    return UnreachableError.exit_code if "unchecked" in levels else 0


def finding_of_error(
    error: RefusedError | UnreachableError,
    about: About,
    window: str | None = None,
    prefix: str = "",
) -> Finding:
    """The finding for an error: `unchecked` if nothing answered, else `wrong`."""
    level: Level = "unchecked" if isinstance(error, UnreachableError) else "wrong"
    return Finding(level, about, prefix + error.message, error.advice, window)


def changed_table_advice(key: str, capabilities: Capabilities) -> str:
    """The advice if a window's rows or dead letters differ from its receipt."""
    return f"Another program changed the table. {read_again_advice(key, capabilities)}"


def read_again_advice(key: str, capabilities: Capabilities) -> str:
    """The advice for a window whose rows are not as they were committed."""
    if capabilities.replaces:
        return f"windrow replay SPEC --window {key} reads the window again from the same offsets."
    return (
        "The sink can't replace it: to have the window again, begin a pipeline with another id and"
        " another place for its rows."
    )
