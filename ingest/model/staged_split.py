"""The result of a task that has staged one split."""

from __future__ import annotations

import msgspec

from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksum, SplitCounts
from windrow.ingest.model.refusal_summary import RefusedAt
from windrow.ingest.model.writer_schema import WriterSchema


class Staging(msgspec.Struct, frozen=True):
    """The result of one stager: its own count and checksum, and what to commit.

    `checksum` covers every column that was staged (`ingest.schema.checksum`), so not
    the window's column. `committables` are texts that only the sink, or the dead-letter
    store, that staged them reads: names and sizes of files, or the rows themselves.
    They are small, and losing them does no harm.
    """

    rows: int = 0
    checksum: Checksum = "0" * 16
    committables: tuple[str, ...] = ()


class Staged(msgspec.Struct, frozen=True):
    """The result of one task: its counts, and what to commit.

    `rows` and `dead` are the committables of its rows and of its dead letters; nobody
    sees these yet. `refused` holds the number, kinds and first offsets of the dead
    letters of each stage: limits are checked against it, and the error of a refused
    window shows it. It isn't in the counts, because the receipt keeps those for ever.
    `schemas`: the writers' schemas that the task asked the registry for. `ran`: begin
    and end of the task, in epoch seconds of its machine's clock.
    """

    split: Split
    counts: SplitCounts
    rows: tuple[str, ...]
    dead: tuple[str, ...]
    refused: tuple[RefusedAt, ...] = ()
    schemas: tuple[WriterSchema, ...] = ()
    ran: tuple[float, float] | None = None
