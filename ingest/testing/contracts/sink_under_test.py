"""The base class of the contract suites of sinks.

It says how a sink is made, how its rows are read, and how a commit's answer gets lost.
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
from windrow.ingest.testing.contracts.commit_hooks import answer_puts
from windrow.ingest.testing.contracts.windows import (
    ROWS,
    produced_messages,
    receipt,
    stage,
    staged_receipt,
)


class SinkUnderTest(ABC):
    """The base class of a suite for one kind of sink."""

    @abstractmethod
    def make(self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> Any:
        """Makes a sink whose table doesn't exist yet."""

    @abstractmethod
    def reopen(self, sink: Any) -> Any:
        """Makes a sink on the same table, as another process would.

        Returns the same object if the table exists in one process only.
        """

    @abstractmethod
    def pieces(self, sink: Any) -> list[pa.Table]:
        """Returns all visible rows, in pieces as `testing.checker.check` needs them."""

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        """Makes the answer of the next commit get lost, though the commit arrives.

        It works for a sink on a `table_store.TableStore`. The suite of another sink overrides
        it.
        """
        answer_puts(sink, (Unanswered("the line is cut"), True))
        return nullcontext()

    @pytest.fixture
    def sink(self, tmp_path: Path) -> Any:
        """A prepared sink."""
        sink = self.make(tmp_path, ROWS)
        sink.prepare()
        return sink

    capabilities = Capabilities()
    """The capabilities that a sink of this kind must have."""

    def generations(self, sink: Any) -> range:
        """Returns the generations that a test commits: 0 and 1, or 0 without replacements."""
        return range(2 if sink.capabilities.replaces else 1)

    def report(self, sink: Any, numbers: list[int]) -> Report:
        """Returns the checker's report, if exactly these windows should be in the table."""
        receipts = [c.receipt for c in sink.receipts()]
        dead = [sink.read_dead(r.window) for r in receipts]
        pieces, metadata = self.pieces(sink), sink.metadata
        return check(
            produced_messages(numbers), pieces, dead, receipts, content="id", metadata=metadata
        )

    def commit(self, sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
        """Stages and commits a window with its dead letters."""
        new_receipt, staged = staged_receipt(sink, number, generation, attempt)
        sink.commit_dead(new_receipt.plan, attempt, staged)
        return sink.commit(new_receipt, staged)

    def commit_plan(
        self, sink: Any, planned: Plan, *, generation: int = 0, grid: str = "hourly"
    ) -> Any:
        """Stages and commits any plan with its dead letters."""
        staged = stage(sink, planned, generation, f"a{generation}")
        sink.commit_dead(planned, f"a{generation}", staged)
        return sink.commit(
            receipt(planned, staged, generation, f"a{generation}", grid=grid), staged
        )
