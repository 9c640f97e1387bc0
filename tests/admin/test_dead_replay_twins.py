"""The checker finds the faults of wrong implementations of dead-letter replay.

The real one passes the same crashes and races.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.admin.test_dead_replay import Interrupted
from tests.admin.ward import DeadLetterScene, hour
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Committed, Receipt, Staged
from windrow.ingest.ports.sink import Done, Outcome
from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable
from windrow.ingest.testing.checker import Report
from windrow.ingest.testing.sink import MemoryDeadLetters, decode_tables


def attempts_of(letters: MemoryDeadLetters, window: Window) -> list[str]:
    """Returns the attempts that left dead letters of a window, in their order."""
    content = letters.store.content
    named = [
        DeadLetterTable.window_of_note(name, "dead")
        for name in ({} if content is None else content.notes)
    ]
    return [
        window_and_attempt[1]
        for window_and_attempt in named
        if window_and_attempt is not None and window_and_attempt[0] == window.key
    ]


class ResolvedFirst(MemoryDeadLetters):
    """A wrong store that resolves dead letters before the data is committed.

    The letters of the newest attempt are open, even if that attempt didn't commit.
    """

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        newest = attempts_of(self, window)
        return super().read(window, newest[-1] if newest else attempt, limit)


class ResolvedAfter(MemoryDeadLetters):
    """A wrong store that resolves dead letters after the data is committed.

    The letters of the first attempt stay open.
    """

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        return super().read(window, attempts_of(self, window)[0], limit)


class Unfenced:
    """A wrong sink that adds a replay's rows and receipt, whatever was committed meanwhile."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        if receipt.dead_replay is None:
            return self._sink.commit(receipt, staged)  # type: ignore[no-any-return]
        content, key = self._sink.store.content, receipt.window.key
        version = content.version + 1
        rows = (*content.rows[key], *(t for s in staged for t in decode_tables(s.rows)))
        self._sink.store.content = replace(
            content,
            version=version,
            rows=content.rows | {key: rows},
            receipts=content.receipts | {key: (version, receipt)},
        )
        return Done(Committed(receipt, version))


def scene_of(
    folder: Path,
    store: MemoryDeadLetters | None = None,
    sink: Callable[[Any], Any] = lambda sink: sink,
) -> DeadLetterScene:
    """Returns a scene with a committed hour; None for `store` means the right store."""
    scene = DeadLetterScene(folder, "memory")
    scene.store = scene.store if store is None else store
    scene.sink = sink(scene.sink)
    scene.fill(0)
    scene.run(0)
    return scene


def kill_replay(scene: DeadLetterScene, point: str, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Returns the checker's report after a replay of dead letters crashed at a point."""
    assert scene.verdict().ok
    monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise")
    with pytest.raises(CrashError):
        scene.replay_dead_letters(0, scene.pipeline(lenient=True))
    monkeypatch.delenv("WINDROW_CRASH")
    return scene.verdict()


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_the_real_one_dies_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A crash of the real one, before or after its commit, loses or doubles no message."""
    assert kill_replay(scene_of(tmp_path), point, monkeypatch).ok


def test_resolving_first_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If letters are resolved before the commit, a crash in between loses the messages."""
    report = kill_replay(scene_of(tmp_path, ResolvedFirst()), "commit.before", monkeypatch)
    assert {(tp.partition, offset) for tp, offset in report.missing} == {(0, 3), (1, 3)}


def test_resolving_afterwards_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If letters are resolved after the commit, a crash in between doubles the messages."""
    report = kill_replay(scene_of(tmp_path, ResolvedAfter()), "commit.after", monkeypatch)
    assert {(tp.partition, offset) for tp, offset in report.duplicated} == {(0, 3), (1, 3)}


def race_replays(scene: DeadLetterScene) -> Report:
    """Returns the checker's report after two simultaneous replays of the same letters."""
    lenient = scene.pipeline(lenient=True)
    scene.replay_dead_letters(
        0,
        replace(
            lenient, sink=Interrupted(scene.sink, lambda: scene.replay_dead_letters(0, lenient))
        ),
    )
    return scene.verdict()


def test_the_real_one_is_fenced(tmp_path: Path) -> None:
    """The second of two replays with the real sink writes nothing."""
    scene = scene_of(tmp_path)
    assert race_replays(scene).ok
    assert scene.ids()[hour(0).key, 0, 3] == [7]


def test_without_a_fence_it_doubles(tmp_path: Path) -> None:
    """Without a fence, both replays write, and the messages are doubled."""
    assert {
        (tp.partition, offset)
        for tp, offset in race_replays(scene_of(tmp_path, sink=Unfenced)).duplicated
    } == {(0, 3), (1, 3)}
