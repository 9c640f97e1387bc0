"""A task that fails gives up what it staged, once, and says nothing of its own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ingest.model.plan import Split
from ingest.run.task import SplitTask

SPLIT = Split("t", 0, 0, 3)


class Recorder:
    """A stager that only notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


class Steps:
    """A reader, decoder and transform, one step of which fails."""

    def __init__(self, broken: str, error: BaseException) -> None:
        self.broken, self.error = broken, error

    def _fail(self, step: str) -> None:
        if step == self.broken:
            raise self.error

    def open(self) -> Any:
        return lambda batch: self._fail("decode") or batch

    def read(self, _: Split, take: Any) -> None:
        self._fail("read")
        take(pa.record_batch({}))


@pytest.mark.parametrize("error", [ValueError("torn"), KeyboardInterrupt("stopped")])
@pytest.mark.parametrize("broken", ["read", "decode"])
def test_a_task_that_fails_discards_what_it_staged(broken: str, error: BaseException) -> None:
    """Whatever ends it, a cancelled Spark task too: rows and dead letters are let go of, none is finished, the error goes on as it is."""
    rows, dead, steps = Recorder(), Recorder(), Steps(broken, error)
    task = SplitTask(steps, steps, steps, lambda _: rows, lambda _: dead)  # type: ignore[arg-type]
    with pytest.raises(type(error)) as raised:
        task(SPLIT)
    assert raised.value is error
    assert (rows.calls, dead.calls) == (["discard"], ["discard"])
