"""The model of a catalog's swap doesn't drift from the code: what the Iceberg sink does
in races and deaths, it can do, too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.pointer import Catalog
from tests.protocols.traces import Recorder
from tests.sinks.iceberg.recorded import RecordedIceberg
from tests.sinks.iceberg.twins import NoAssertion, OwnRetry
from tests.sinks.iceberg.world import sink_at
from tests.sinks.numbered_traces import NumberedTraces, Open, RecordedTable, recorder
from tests.sinks.things import ROWS
from tests.sinks.traced import commits

__all__ = ["recorder"]

pytestmark = [pytest.mark.slow, pytest.mark.some(1)]


class TestIcebergTraces(NumberedTraces):
    """In a folder, whose catalog is in SQLite."""

    model = Catalog

    @staticmethod
    def begun(place: Path) -> None:
        sink_at(str(place)).prepare()

    @staticmethod
    def opened(place: Path, recorder: Recorder, who: str, kind: type[Any] = RecordedIceberg) -> Any:
        return kind(str(place), ROWS).listened_to(recorder, who)

    @pytest.mark.parametrize("twin", [OwnRetry, NoAssertion])
    def test_a_twin_is_not_followed(
        self, tmp_path: Path, make: Open, recorder: Recorder, twin: type[Any]
    ) -> None:
        """A swap that is answered ok though another one came behind the look: the model can't."""
        waiting = self.opened(
            tmp_path / "orders", recorder, "A", type("Twin", (RecordedTable, twin), {})
        )
        waiting.meanwhile = partial(commits, make("B"))
        commits(waiting)
        first, *_ = self.refused(recorder)
        assert (first.who, first.name, first.at, first.reply) == ("A", "put", 0, "ok")
