"""The contract suite of a sink with a primary key, where it differs from a sink that appends."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.ingest.errors import RefusedError
from windrow.ingest.ports.sink import Done
from windrow.ingest.testing.contracts.sink import SinkContract
from windrow.ingest.testing.contracts.windows import (
    plan,
    receipt,
    staged_dead_replay,
    staged_receipt,
    window,
)


class SinkKeyedContract(SinkContract):
    """The suite of all sinks, with other rules for replacements."""

    def test_replaced_by_nothing(self, sink: Any) -> None:
        """A replacement without rows is refused, if its window has the last change of a key. A
        window without rows can be replaced.
        """
        self.commit(sink, 0)
        self.commit(sink, 1)
        with pytest.raises(RefusedError, match="the last change of 18 keys"):
            sink.commit(receipt(plan(sink, 0), [], 1, "b1"), [])
        assert sink.look(window(0)).receipt.generation == 0
        assert self.report(sink, [0, 1]).ok
        empty = plan(sink, 2, offsets=(20, 20))
        for generation in (0, 1):
            assert isinstance(
                sink.commit(receipt(empty, [], generation, f"c{generation}"), []), Done
            )

    def test_a_replacement_takes_replayed_rows_with_it(self, sink: Any) -> None:
        """A replacement must have the keys that a dead-letter replay has added, or it is
        refused.
        """
        self.commit(sink, 0)
        sink.commit(*staged_dead_replay(sink, sink.look(window(0)).receipt, "m1"))
        with pytest.raises(RefusedError, match="the last change of 2 keys"):
            self.commit(sink, 0, generation=2, attempt="b1")
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))
        assert isinstance(sink.commit(*staged_receipt(sink, 0, 2, "b2", dead=False)), Done)
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))
