"""What a kind of sink can't hold, a run doesn't ask of it, and verification doesn't hold against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import RefusedError
from ingest.operate.verify import verify
from ingest.ports.sink import Promises
from ingest.run.pipeline import Request, run
from tests.run.test_run import PLAIN, Desk, hour


class Promising:
    """A sink with other promises."""

    def __init__(self, sink: Any, promises: Promises) -> None:
        self._sink, self.promises = sink, promises

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)


def test_a_replacement_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """A sink that can't take back what it committed is not asked to: the window stays as it is; without replacing it is only reported."""
    pipeline = Desk(tmp_path).pipeline()
    pipeline = replace(pipeline, sink=Promising(pipeline.sink, Promises(replaces=False)))
    done = run(pipeline, hour(0), PLAIN)
    with pytest.raises(RefusedError, match="can't be replaced: delta keeps what was committed once"):
        run(pipeline, hour(0), Request("again", replace=True))
    assert run(pipeline, hour(0), PLAIN).committed == done.committed


def test_rows_that_replace_each_other_are_not_counted(tmp_path: Path) -> None:
    """Where a later row of a key takes the place of an earlier one, rows can't be held against the counts of receipts."""
    pipeline = Desk(tmp_path).pipeline()
    run(pipeline, hour(0), PLAIN)
    from deltalake import DeltaTable

    DeltaTable(pipeline.spec.sink_path()).delete("_offset = 1")

    def wrong(mode: Any) -> list[str]:
        sink: Any = Promising(pipeline.sink, Promises(mode=mode))
        found = verify("things", sink, pipeline.dead_letters, pipeline.ledger, pipeline.broker).findings
        return [f.about for f in found if f.level == "wrong"]

    assert wrong("append") == ["table"]
    assert wrong("upsert") == []
