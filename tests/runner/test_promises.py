"""Capabilities of a sink: a run and verification don't ask for more than a sink promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runner.test_run import PLAIN, Desk, hour
from windrow.ingest.admin.verify import verify
from windrow.ingest.admin.verify_ledger import against_ledger
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.testing.engine import LocalEngine


class Promising:
    """A sink with other capabilities."""

    def __init__(self, sink: Any, capabilities: Capabilities) -> None:
        self._sink, self.capabilities = sink, capabilities

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)


def test_a_replacement_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """A replacement is refused before anything is read if the sink can't replace.

    Without it, the window is only reported.
    """
    pipeline = Desk(tmp_path).pipeline()
    pipeline = replace(pipeline, sink=Promising(pipeline.sink, Capabilities(replaces=False)))
    done = run(pipeline, hour(0), PLAIN)
    with pytest.raises(SpecError, match="can't be replaced: delta keeps what was committed once"):
        run(pipeline, hour(0), Request("again", replace=True))
    assert run(pipeline, hour(0), PLAIN).committed == done.committed


class Forgetful(Promising):
    """A sink that has lost all receipts, and can't replace."""

    def __init__(self, sink: Any) -> None:
        super().__init__(sink, Capabilities(replaces=False))

    def look(self, window: Window) -> None:
        """Returns None; see `Sink.look`."""

    def looks(self, windows: Sequence[Window]) -> Iterator[None]:
        """Returns None for each window; see `Sink.looks`."""
        return iter([None] * len(windows))


def test_a_window_whose_receipt_is_lost_is_not_committed_again(tmp_path: Path) -> None:
    """A window whose receipt is lost isn't committed again: its rows may be there.

    The error has the remedies. It is committed again on request.
    """
    pipeline = Desk(tmp_path).pipeline()
    done = run(pipeline, hour(0), PLAIN)
    forgetful = replace(pipeline, sink=Forgetful(pipeline.sink), engine=None)  # type: ignore[arg-type]  # nothing is read
    with pytest.raises(
        RefusedError,
        match=r"its receipt is missing.*--restore-receipts.*--window 2026-01-05T00:00:00Z --again",
    ):
        run(forgetful, hour(0), PLAIN)
    (finding,) = against_ledger("things", [], (), forgetful.sink, pipeline.ledger)
    assert "--restore-receipts" in finding.advice
    rerun = run(
        replace(pipeline, sink=forgetful.sink), hour(0), Request("again", accept_duplicates=True)
    )
    assert rerun.committed == done.committed, "the commit's own look is the table's"


def test_a_receipt_that_is_not_seen_yet_is_waited_for(tmp_path: Path) -> None:
    """A receipt that another writer's open transaction hides isn't lost: the run waits, and
    after too long it can be run again.
    """
    pipeline = Desk(tmp_path).pipeline()
    done = run(pipeline, hour(0), PLAIN)

    class Late(Forgetful):
        held_back = True

        def wait_until_decided(self) -> None:
            """Waits, or shows the receipt; see `Sink.wait_until_decided`."""
            if self.held_back:
                raise UnreachableError("An open transaction", "commit", "Wait.")
            self.look = self._sink.look

    late = Late(pipeline.sink)
    waiting_pipeline = replace(pipeline, sink=late, engine=None)  # type: ignore[arg-type]  # nothing is read
    with pytest.raises(UnreachableError, match="open transaction"):
        run(waiting_pipeline, hour(0), PLAIN)
    late.held_back = False
    assert run(replace(pipeline, sink=late), hour(0), PLAIN).committed == done.committed


def test_a_lost_receipt_is_no_window_that_nobody_ran(tmp_path: Path) -> None:
    """verify names the remedies for a lost receipt, and doesn't say that the window may be run."""
    pipeline = Desk(tmp_path).pipeline()
    for n in range(3):
        run(pipeline, hour(n), PLAIN)

    class Lossy(Forgetful):
        def audit(self) -> Any:
            audit = self._sink.audit()
            remaining_commits = [c for c in audit.receipts() if c.receipt.window != hour(1)]
            audit.receipts = lambda: iter(remaining_commits)
            return audit

    whole_pipeline = pipeline
    findings = verify(
        "things",
        Lossy(whole_pipeline.sink),
        whole_pipeline.dead_letters,
        whole_pipeline.ledger,
        whole_pipeline.broker,
    ).findings
    assert [f.window for f in findings if f.about in {"ledger", "windows"}] == [hour(1).key]


def test_a_receipt_that_is_lost_while_the_window_is_read_forbids_it_too(tmp_path: Path) -> None:
    """A receipt that is lost while the window is read also refuses the commit.

    1. A run looks.
    2. Another run commits, and its receipt is lost.
    3. The first run has read, and would commit.
    """
    pipeline = Desk(tmp_path).pipeline()
    other_pipeline = replace(pipeline)

    class Overtaken(LocalEngine):
        def run(self, *arguments: Any) -> Any:
            run(other_pipeline, hour(0), PLAIN)
            return super().run(*arguments)

    with pytest.raises(RefusedError, match="its receipt is missing"):
        run(replace(pipeline, sink=Forgetful(pipeline.sink), engine=Overtaken()), hour(0), PLAIN)
