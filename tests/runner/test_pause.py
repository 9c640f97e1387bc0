"""A pause in the middle of a run over several windows."""

from __future__ import annotations

import pytest

from tests.contracts.source_desk import LATER, SourceDesk, hour, minutes
from windrow.ingest.errors import PausedError
from windrow.ingest.model.ledger_records import Pause
from windrow.ingest.runner import attempts
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.progress import Progress
from windrow.ingest.runner.run_windows import pass_over_refused, run_windows


def test_windows_that_are_read_finish_and_no_other_begins(
    desk: SourceDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused run commits the windows that it is reading, and names the windows that it didn't
    try.

    The next run continues there. This holds also if refused windows are passed over.
    """
    monkeypatch.setattr(attempts, "OFFSETS_A_JOB", 1)
    tp = desk.logs.partition()
    desk.send(tp, *minutes(10, 70, 130, 190))
    pipeline, windows, done = desk.pipeline({"topic": tp.topic}), [hour(n) for n in range(4)], []

    def pause(update: Progress) -> None:
        if update.notes:
            pipeline.ledger.put_pause("things", Pause(0, True, "ann", "look", LATER))

    request, pass_over = Request("r"), pass_over_refused(pipeline)
    with pytest.raises(PausedError) as refused:
        done.extend(run_windows(pipeline, windows, request, pause, pass_over))
    assert "paused by ann since" in str(refused.value)
    assert "Not tried: 2026-01-02T05:00:00Z" in str(refused.value)
    assert desk.sink is not None
    assert [c.receipt.window for c in desk.sink.receipts()] == [hour(0)]
    pipeline.ledger.put_pause("things", Pause(1, False, "ann", "", LATER))
    assert len(list(run_windows(pipeline, windows, request))) == 4
    assert desk.verdict().ok
