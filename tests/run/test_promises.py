"""What a kind of sink can't hold, a run doesn't ask of it, and verification doesn't hold against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import RefusedError
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
