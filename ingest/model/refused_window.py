"""Refusals: which windows were refused for their data, and what decided that."""

from __future__ import annotations

from datetime import datetime

import msgspec

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
    at: datetime
