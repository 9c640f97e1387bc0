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


class Failing:
    """A reader whose second batch never comes, or a decoder that takes none."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def batches(self, _: Split) -> Any:
        yield pa.record_batch({})
        raise self.error

    def decode(self, _: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [ValueError("torn"), KeyboardInterrupt("stopped")])
def test_a_task_that_fails_discards_what_it_staged(error: BaseException) -> None:
    """Whatever ends it, a cancelled Spark task too: the attempt is let go of, nothing is finished, and the error goes on as it is."""
    stager, broken = Recorder(), Failing(error)
    task = SplitTask(broken, broken, lambda _: stager)  # type: ignore[arg-type]
    with pytest.raises(type(error)) as raised:
        task(SPLIT)
    assert raised.value is error
    assert stager.calls == ["discard"]
