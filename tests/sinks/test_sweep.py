"""Staged files that a commit has copied out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.sqlite.world import SqliteBoth
from tests.sinks.things import ROWS, staged_receipt, window
from windrow.ingest.errors import UnreachableError
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.place import Place


def test_a_staged_file_that_stays_fails_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a commit's files can't be removed behind it, the window is committed all the same."""
    sink = SqliteBoth(str(tmp_path / "shop.sqlite"), ROWS)
    sink.prepare()
    made, staged = staged_receipt(sink, 0)
    sink.commit_dead(made.plan, "a1", staged)
    tried = list[str]()

    def stays(_: Place, path: str) -> None:
        tried.append(path)
        raise UnreachableError("the folder can't be written", "commit", "Look after it.")

    monkeypatch.setattr(Place, "remove", stays)
    assert isinstance(sink.commit(made, staged), Done)
    assert tried
    assert sink.look(window(0)) is not None
