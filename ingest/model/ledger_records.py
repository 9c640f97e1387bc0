"""Records of the ledger by which windows aren't run: refusals of windows, pauses of pipelines."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windrow.ingest.model.boundary import instant
from windrow.ingest.model.plan import Window


class RefusedWindow(msgspec.Struct, frozen=True):
    """A record of the ledger: a window was refused for its data. Its next commit removes it.

    `plan`: the digest of the window's plan, empty if none was frozen. `schema`: the digest of
    what decides which messages are refused (`runner.due.schema_digest`). `code`: windrow's
    version. The refusal counts as long as all three are the same.
    """

    window: Window
    plan: str
    schema: str
    code: str
    refused_at: datetime = msgspec.field(name="at")


class Pause(msgspec.Struct, frozen=True):
    """A record of the ledger: the pipeline is paused, or goes on again. The newest counts.

    `number`: its place among the records, from 0 on.
    """

    number: int
    paused: bool
    who: str
    reason: str = msgspec.field(name="why")
    recorded_at: datetime = msgspec.field(name="at")

    def __str__(self) -> str:
        """The record, to follow a pipeline's name: `is paused by ann since ...: why`."""
        state = f"is paused by {self.who} since" if self.paused else f"was resumed by {self.who} at"
        return f"{state} {instant(self.recorded_at)}{f': {self.reason}' if self.reason else ''}"
