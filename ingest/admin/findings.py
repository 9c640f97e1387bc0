"""The findings of verification, and the texts that several comparisons share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Capabilities

Level = Literal["wrong", "unchecked", "info"]
About = Literal["receipts", "windows", "ledger", "table", "topic", "messages", "registry"]

EXACTLY = Capabilities()
ALLOWED = "The sink's delivery_guarantee allows it."
"""The advice if rows are lost or doubled, and the spec's delivery guarantee allows that."""
REPORT = "This is a bug: keep the table as it is and report it."


class Finding(msgspec.Struct, frozen=True):
    """One result of verification.

    Attributes:
        level: "wrong": a person must act; "unchecked": a system couldn't be reached;
            "info": anything else.
        about: what was compared.
        message: the result.
        advice: what to do.
        window: the key of the window that it is about, if any.
    """

    level: Level
    about: About
    message: str = msgspec.field(name="what")
    advice: str = msgspec.field(name="do", default="")
    window: str | None = None


def exit_code(findings: Iterable[Finding]) -> int:
    """Returns 1 if a finding is `wrong`, else 3 if one is `unchecked`, else 0."""
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
    """Makes the finding of an error: `unchecked` if a system didn't answer, else `wrong`."""
    level: Level = "unchecked" if isinstance(error, UnreachableError) else "wrong"
    return Finding(level, about, prefix + error.message, error.advice, window)


def changed_table_advice(receipt: Receipt, capabilities: Capabilities) -> str:
    """Returns the advice for a window whose rows or dead letters differ from its receipt."""
    return f"Another program changed the table. {read_again_advice(receipt, capabilities)}"


def read_again_advice(receipt: Receipt, capabilities: Capabilities) -> str:
    """Returns the advice for a window whose rows aren't as they were committed."""
    if capabilities.replaces:
        words = receipt.window.key + (" --bring-back" if receipt.expired_at else "")
        return f"windrow replay SPEC --window {words} reads the window again from the same offsets."
    return (
        "The sink can't replace it: to have the window again, begin a pipeline with another id and"
        " another place for its rows."
    )
