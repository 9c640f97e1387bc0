"""The model of Delta's protocol doesn't drift from the code: what the real sinks do in
races and deaths, it can do, too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.numbered import NumberedLog
from tests.protocols.traces import Recorder
from tests.sinks.delta.recorded import RecordedDelta, RecordedKeyed
from tests.sinks.delta.twins import delta_rs_retries
from tests.sinks.numbered_traces import NumberedTraces, Open, recorder
from tests.sinks.things import ROWS
from tests.sinks.traced import commits
from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.store import DeltaState
from windrow.ingest.sinks.table_store import Answer, TableChange

__all__ = ["recorder"]

pytestmark = [pytest.mark.slow, pytest.mark.some(1)]

KEY = PrimaryKey(("id",), buckets=3)


class TestDeltaTraces(NumberedTraces):
    """Rows are appended."""

    model = NumberedLog

    @staticmethod
    def begun(place: Path) -> None:
        DeltaBoth(str(place), ROWS).prepare()

    @staticmethod
    def opened(place: Path, recorder: Recorder, who: str) -> Any:
        return RecordedDelta(str(place), ROWS).listened_to(recorder, who)

    def test_a_twin_is_not_followed(self, make: Open, recorder: Recorder) -> None:
        """With delta-rs's own retry, and without application ids, A's put is answered
        ok under a number that was taken: the model can't.
        """
        waiting = make("A")
        waiting.meanwhile = partial(commits, make("B"))
        with delta_rs_retries():
            commits(waiting)
        assert [(e.who, e.name, e.at, e.reply) for e in self.refused(recorder)] == [
            ("A", "put", 0, "ok")
        ]


class MergesOnce(RecordedKeyed):
    """A broken twin: what it merged into the state that it looked at, it puts behind
    the one that is there by then.
    """

    def once(self, state: Any, change: TableChange) -> Answer:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        table = tables.load(self.uri)
        assert table is not None
        return super().once(DeltaState(self.store, table), change)


class TestDeltaKeyedTraces(NumberedTraces):
    """The changes are merged between look and put, on each state anew."""

    model = NumberedLog

    @staticmethod
    def begun(place: Path) -> None:
        DeltaKeyedBoth(str(place), ROWS, KEY).prepare()

    @staticmethod
    def opened(
        place: Path, recorder: Recorder, who: str, kind: type[RecordedKeyed] = RecordedKeyed
    ) -> Any:
        return kind(str(place), ROWS, KEY).listened_to(recorder, who)

    def test_a_twin_is_not_followed(self, tmp_path: Path, make: Open, recorder: Recorder) -> None:
        """A put under another number than the one behind the look: the model can't."""
        waiting = self.opened(tmp_path / "orders", recorder, "A", MergesOnce)
        waiting.meanwhile = partial(commits, make("B"), window=1)
        commits(waiting)
        first, *_ = self.refused(recorder)
        assert (first.who, first.name, first.at, first.reply) == ("A", "put", 1, "ok")
