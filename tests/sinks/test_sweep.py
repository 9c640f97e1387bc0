"""Staged files: those that a commit has copied out, and those that a sweep would take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sinks.sqlite.world import SqliteBoth
from tests.sinks.things import ROWS, staged_receipt, window
from windrow.ingest.errors import UnreachableError
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.place import ListedFile, Place
from windrow.ingest.sinks.sweep import orphans

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def test_what_is_committed_while_a_sweep_looks_is_not_listed() -> None:
    """A file that is staged and committed between the two looks isn't one that nobody needs."""
    old, staged = ListedFile("old", 1, EPOCH), ListedFile("new", 1, EPOCH)
    listed, committed = [old], set[str]()

    def walk(_: str) -> list[ListedFile]:
        found = [*listed, staged]
        committed.add("new")
        return found

    @contextmanager
    def reading() -> Iterator[Any]:
        known = set(committed)
        yield SimpleNamespace(
            unneeded=lambda files, _: {f.path: 0 for f in files if f.path not in known}
        )

    store: Any = SimpleNamespace(reading=reading)
    files: Any = SimpleNamespace(folders=("data",), place=SimpleNamespace(walk=walk))
    assert orphans(store, files, 0) == {"old": 0}
