"""Missing, cut or flipped files, and a full disk: each raises an error with a sentence, and
never BugError.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.full_disk import files_end_at
from tests.sinks.delta.world import DeltaWorld
from tests.sinks.files.world import FilesWorld
from tests.sinks.iceberg.world import IcebergWorld
from tests.sinks.worlds import SINKS, world_of
from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.errors import RefusedError, UnreachableError, WindrowError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.testing.contracts.windows import plan, stage_split, staged_receipt, window

pytestmark = pytest.mark.slow

KINDS = {
    "delta": DeltaWorld(),
    "files": FilesWorld(),
    "files-jsonl": FilesWorld("jsonl"),
    "files-csv": FilesWorld("csv"),
    "iceberg": IcebergWorld(),
}


def ask_row_ranges(sink: Any) -> None:
    sink.audit().rows_held(window(0))


def sum_contents(sink: Any) -> None:
    sum_by_split(
        sink.look(window(0)).receipt.splits, sink.audit().contents(window(0)), sink.metadata
    )


def count_dead(sink: Any) -> None:
    sink.dead_letters.count(window(0), "a1")


def read(sink: Any) -> None:
    sink.dead_letters.read(window(0), "a1")


def sum_dead(sink: Any) -> None:
    sum_by_split(
        sink.look(window(0)).receipt.splits, sink.dead_letters.contents(window(0)), DEFAULT, "a1"
    )


ASKS: dict[bool, list[Callable[[Any], None]]] = {
    False: [ask_row_ranges, sum_contents],
    True: [count_dead, read, sum_dead],
}


def make_sink(tmp_path: Path, kind: str) -> Any:
    sink = KINDS[kind].sink_at(KINDS[kind].new_location(tmp_path, None))
    sink.prepare()
    receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(receipt.plan, "a1", staged)
    sink.commit(receipt, staged)
    return sink


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_gone_cut_or_flipped_is_told(tmp_path: Path, kind: str) -> None:
    """Verification and the readers of dead letters answer a harmed file with a sentence; a
    missing or cut file is a finding.
    """
    sink = make_sink(tmp_path, kind)
    data_paths = [
        path for path in tmp_path.rglob("*-*.*") if "data" in path.parts and path.is_file()
    ]
    assert len(data_paths) == 4
    for path in {("_dead/" in str(path)): path for path in data_paths}.values():
        content = path.read_bytes()
        # for text files the counts find the rest
        for harmed in (
            (None, b"", content[: len(content) // 2]) if path.suffix == ".parquet" else (None,)
        ):
            path.unlink() if harmed is None else path.write_bytes(harmed)
            for ask in ASKS["_dead/" in str(path)]:
                with pytest.raises(RefusedError, match=r"gone|damaged"):
                    ask(sink)
        for position in range(4, len(content), max(len(content) // 24, 1)):
            path.write_bytes(
                content[:position] + bytes([content[position] ^ 0x80]) + content[position + 1 :]
            )
            for ask in ASKS["_dead/" in str(path)]:
                with suppress(WindrowError):
                    ask(sink)
        path.write_bytes(content)
        for ask in ASKS["_dead/" in str(path)]:
            ask(sink)


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [0, 2, 40, 700])
def test_a_disk_that_is_full_while_rows_are_staged(tmp_path: Path, kind: str, room: int) -> None:
    """A full disk while rows are staged raises UnreachableError, at any position in the file.

    The clean-up raises nothing else.
    """
    sink = make_sink(tmp_path, kind)
    planned = plan(sink, 1)
    split = planned.splits[0]
    stager, letters = (
        sink.stager(planned, 0, "a1")(split),
        sink.dead_letters.stager(planned, 0, "a1")(split),
    )
    with files_end_at(room):
        with pytest.raises(UnreachableError, match=r"can't be (read or )?written|room"):
            stage_split(stager, letters, split, dead=True)
        stager.discard()
        letters.discard()


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", SINKS)
def test_a_file_that_cannot_be_finished(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An error that comes when a file gets its name is told; the clean-up raises no other."""
    world = world_of(kind)
    server = request.getfixturevalue(world.server) if world.server else None
    sink = world.sink_at(world.new_location(tmp_path, server))
    sink.prepare()
    planned, finish, finished = plan(sink, 0), Place.finish, list[str]()

    def finish_letters_alone(folder: Place, path: str, **options: Any) -> int:
        if finished:
            raise UnreachableError("the disk is gone", "stage", "Run the window again.")
        finished.append(path)
        return finish(folder, path, **options)

    monkeypatch.setattr(Place, "finish", finish_letters_alone)
    split = planned.splits[0]
    stager = sink.stager(planned, 0, "a1")(split)
    letters = sink.dead_letters.stager(planned, 0, "a1")(split)
    with pytest.raises(UnreachableError, match="the disk is gone"):
        stage_split(stager, letters, split, dead=True, keyed=sink.capabilities.mode == "upsert")
    stager.discard()
    letters.discard()
