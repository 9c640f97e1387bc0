"""Pauses of a pipeline: who wants no window of it to begin, since when, and why."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windrow.ingest.model.boundary import instant


class Pause(msgspec.Struct, frozen=True):
    """A record of the ledger: the pipeline is paused, or goes on again. The newest counts.

    `number`: its place among the records, from 0 on.
    """

    number: int
    paused: bool
    who: str
    why: str
    at: datetime

    def __str__(self) -> str:
        """The record, to follow a pipeline's name: `is paused by ann since ...: why`."""
        state = f"is paused by {self.who} since" if self.paused else f"was resumed by {self.who} at"
        return f"{state} {instant(self.at)}{f': {self.why}' if self.why else ''}"
