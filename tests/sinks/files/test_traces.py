"""The model of numbered manifests doesn't drift from the code: what the files sink does
in races and deaths, it can do, too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.numbered import Manifests
from tests.protocols.traces import Recorder
from tests.sinks.files.recorded import RecordedFiles
from tests.sinks.files.twins import NextFreeNumber, Overwrites, RetriesBlindly
from tests.sinks.files.world import FilesBoth
from tests.sinks.numbered_traces import NumberedTraces, Open, RecordedTable, recorder
from tests.sinks.things import ROWS
from tests.sinks.traced import commits

__all__ = ["recorder"]

pytestmark = [pytest.mark.slow, pytest.mark.some(1)]


class TestFilesTraces(NumberedTraces):
    """Put by hard links."""

    model = Manifests

    @staticmethod
    def begun(place: Path) -> None:
        FilesBoth(str(place), ROWS).prepare()

    @staticmethod
    def opened(place: Path, recorder: Recorder, who: str, kind: type[Any] = RecordedFiles) -> Any:
        return kind(str(place), ROWS).listened_to(recorder, who)

    @pytest.mark.parametrize(
        ("twin", "at"), [(Overwrites, 0), (NextFreeNumber, 0), (RetriesBlindly, 1)]
    )
    def test_a_twin_is_not_followed(
        self, tmp_path: Path, make: Open, recorder: Recorder, twin: type[Any], at: int
    ) -> None:
        """A put that is answered ok under a number that was taken, or another number
        than the one behind the look: the model can't.
        """
        waiting = self.opened(
            tmp_path / "orders", recorder, "A", type("Twin", (RecordedTable, twin), {})
        )
        waiting.meanwhile = partial(commits, make("B"))
        commits(waiting)
        first, *_ = self.refused(recorder)
        assert (first.who, first.name, first.at, first.reply) == ("A", "put", at, "ok")
