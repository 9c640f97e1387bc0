"""What one task brings back of the split that it staged."""

from __future__ import annotations

import msgspec

from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksum, SplitCounts
from windrow.ingest.model.refusals import RefusedAt
from windrow.ingest.model.writer_schema import WriterSchema


class Staging(msgspec.Struct, frozen=True):
    """What one stager wrote, counted by its own hand.

    `checksum` is of every column that was staged (`ingest.schema.checksum`; the
    window's column is not among them). `committables` are what to commit, in the words
    of the sink or dead-letter store that staged it: names and sizes of files, or the
    rows themselves. They are small, travel as text, and are safe to lose.
    """

    rows: int = 0
    checksum: Checksum = "0" * 16
    committables: tuple[str, ...] = ()


class Staged(msgspec.Struct, frozen=True):
    """What one task staged: the committables of its rows and of its dead letters, none
    of which is visible yet.

    `refused` says by stage how many dead letters there are, and what was wrong with
    them. Limits are held against it, and it is for the error of a window that is
    refused, so it is no part of the counts, which the receipt keeps for ever.
    `schemas`: the writers' schemas that the task had to ask for. `ran`: from when until
    when it ran, in epoch seconds by its machine's clock.
    """

    split: Split
    counts: SplitCounts
    rows: tuple[str, ...]
    dead: tuple[str, ...]
    refused: tuple[RefusedAt, ...] = ()
    schemas: tuple[WriterSchema, ...] = ()
    ran: tuple[float, float] | None = None
