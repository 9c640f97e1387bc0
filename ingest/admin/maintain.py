"""Maintains a pipeline's table and its dead letters, and tells the observer what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.observers.prometheus import observer_of
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import Maintained, Sink
from windrow.ingest.runner.dead_publishing import is_unpublished
from windrow.ingest.runner.observing import tell
from windrow.ingest.waiting import waiting_for

_CHANGES = "windrow_maintained_total"


def maintain_tables(
    spec: PipelineSpec,
    tables: tuple[Sink, DeadLetters],
    ledger: Callable[[], Ledger],
    *,
    dry_run: bool,
) -> Maintained:
    """Maintains tables one after the other, by the limits of the spec.

    Args:
        spec: the pipeline.
        tables: the table of rows, and that of the dead letters.
        ledger: opens the ledger, which gets copies of the receipts of expired windows.
        dry_run: change nothing, and tell the observer nothing.

    Raises:
        RefusedError, UnreachableError: as `ports.sink.Sink.maintain`. The steps before are done.
    """
    observer, steps = None if dry_run else observer_of(spec.id), list[Maintained]()
    with waiting_for(f"the maintenance of pipeline {spec.id}"):
        for done in _maintain_step_by_step(spec, tables, dry_run=dry_run):
            steps.append(done)
            figures = (
                (_CHANGES, done.joined_files, "joined_files"),
                (_CHANGES, done.new_files, "new_files"),
                (_CHANGES, done.expired_versions, "expired_versions"),
                (_CHANGES, done.expired_dead_letters, "expired_dead_letters"),
                (_CHANGES, done.expired_rows, "expired_rows"),
                (_CHANGES, len(done.removed_files), "removed_files"),
            )
            tell(observer, *figures, report=True)
        if spec.maintain.keep_rows is not None and not dry_run:
            _record_expired(spec, tables[0], ledger(), datetime.now(UTC) - spec.maintain.keep_rows)
    return Maintained.sum(steps)


def _maintain_step_by_step(
    spec: PipelineSpec, tables: tuple[Sink, DeadLetters], *, dry_run: bool
) -> Iterator[Maintained]:
    """Yields what each step has done. A later step may fail."""
    yield Maintained(expired_dead_letters=_expire_dead_letters(spec, *tables, dry_run=dry_run))
    for table in tables:
        yield table.maintain(spec.maintain.limits, dry_run=dry_run)


def _expire_dead_letters(
    spec: PipelineSpec, sink: Sink, dead_letters: DeadLetters, *, dry_run: bool
) -> int:
    """Removes dead letters of windows whose last commit is old, a window at a time.

    Dead letters stay as long as they may not be in the topic for dead letters.

    Returns:
        The number of dead letters.
    """
    if spec.maintain.keep_dead_letters is None:
        return 0
    kept_since = datetime.now(UTC) - spec.maintain.keep_dead_letters
    expired = 0
    for receipt in [committed.receipt for committed in sink.receipts()]:
        if (
            receipt.counts.dead
            and receipt.staged_at < kept_since
            and not (spec.dead_letters and is_unpublished(dead_letters, receipt))
            and not dead_letters.is_expired(receipt.window, receipt.attempt)
            and (dry_run or dead_letters.expire(receipt.window, receipt.attempt))
        ):
            expired += receipt.counts.dead
    return expired


def _record_expired(spec: PipelineSpec, sink: Sink, ledger: Ledger, kept_since: datetime) -> None:
    """Copies the receipts of windows whose rows have expired to the ledger.

    A maintenance that died before this is followed by one that makes its copies, too.
    """
    copies = ledger.recorded_receipts(spec.id)
    old = [c.window for c in copies if c.table_rows and c.aging_since < kept_since]
    for committed in filter(None, sink.looks(old)):
        if committed.receipt.expired_at is not None:
            ledger.record(committed.receipt, sink.receipt_text(committed.receipt))
