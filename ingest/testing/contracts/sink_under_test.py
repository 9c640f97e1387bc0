"""What the contract suites of sinks stand on: how a sink is made, how its rows are
read, how a commit's answer gets lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.kit.commit.table_store import Unanswered
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.commit_hooks import answered
from windrow.ingest.testing.contracts.windows import ROWS, produced, receipt, stage, staged_receipt


class SinkUnderTest(ABC):
    """One kind of sink."""

    @abstractmethod
    def make(self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> Any:
        """A sink whose table isn't there yet."""

    @abstractmethod
    def reopen(self, sink: Any) -> Any:
        """A sink on the same table as another process would make it; the same object
        where there is only one process.
        """

    @abstractmethod
    def pieces(self, sink: Any) -> list[pa.Table]:
        """All visible rows, cut as the checker wants them."""

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        """The next commit arrives, but its answer doesn't.

        It is that of a sink over a `table_store.TableStore`; another one overrides it.
        """
        answered(sink, (Unanswered("the line is cut"), True))
        return nullcontext()

    @pytest.fixture
    def sink(self, tmp_path: Path) -> Any:
        """A prepared sink."""
        sink = self.make(tmp_path, ROWS)
        sink.prepare()
        return sink

    capabilities = Capabilities()
    """What the kind must say that it promises."""

    def generations(self, sink: Any) -> range:
        """Those that a window of this sink can have, as far as a case goes."""
        return range(2 if sink.capabilities.replaces else 1)

    def report(self, sink: Any, numbers: list[int]) -> Report:
        """The checker's word on windows that should be there."""
        receipts = [c.receipt for c in sink.receipts()]
        dead = [sink.read_dead(r.window) for r in receipts]
        pieces, metadata = self.pieces(sink), sink.metadata
        return check(produced(numbers), pieces, dead, receipts, content="id", metadata=metadata)

    def commit(self, sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
        """Stage and commit a window with its dead letters."""
        new_receipt, staged = staged_receipt(sink, number, generation, attempt)
        sink.commit_dead(new_receipt.plan, attempt, staged)
        return sink.commit(new_receipt, staged)

    def commit_plan(
        self, sink: Any, planned: Plan, *, generation: int = 0, grid: str = "hourly"
    ) -> Any:
        """Stage and commit any plan with its dead letters."""
        staged = stage(sink, planned, generation, f"a{generation}")
        sink.commit_dead(planned, f"a{generation}", staged)
        return sink.commit(
            receipt(planned, staged, generation, f"a{generation}", grid=grid), staged
        )
