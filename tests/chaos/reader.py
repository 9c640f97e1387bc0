"""A process that reads the table again and again during a round, and records violations."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from tests.chaos.verdict import Split, count_seen, find_violations
from tests.chaos.worker import EXPIRED
from tests.sinks.worlds import world_of
from tests.warm import SERVER
from windrow.ingest.testing.contracts.windows import window


class Looks(msgspec.Struct):
    """The reader's result.

    Attributes:
        looks: how often it looked while others wrote.
        missed: how many looks failed, for example while a server was down.
        violations: at least the first hundred violations that it saw.
    """

    looks: int = 0
    missed: int = 0
    violations: list[str] = []


def start(kind: str, location: str, rows: int, folder: Path) -> BaseProcess:
    """Starts the reader, which ends when the file `quiet` exists."""
    process = SERVER.Process(target=_look_on, args=(kind, location, rows, str(folder)))
    process.start()
    return process


def last_look(process: BaseProcess, folder: Path) -> Looks:
    """Lets the reader look a last time and end, and returns its result."""
    (folder / "quiet").touch()
    process.join(120)
    assert process.exitcode == 0, f"the reader ended with {process.exitcode}"
    return msgspec.json.decode((folder / "looks").read_bytes(), type=Looks)


def may_have_expired(splits: Collection[Split], folder: Path) -> set[Split]:
    """Returns the splits of windows whose rows a sweep may have removed for their age."""
    old = max((int(p.name.removeprefix(EXPIRED)) for p in folder.glob(f"{EXPIRED}*")), default=0)
    return {split for split in splits if split[0] < window(old).key}


def _look_on(name: str, location: str, rows: int, folder: str) -> None:
    kind, looks, seen_splits = world_of(name), Looks(), set[tuple[str, int]]()
    ends = False
    while not ends:
        ends = (Path(folder) / "quiet").exists()
        began = time.monotonic()
        try:
            sink = kind.sink_at(location)
            received = (
                None
                if sink.capabilities.atomic == "window"
                else {c.receipt.window.key for c in sink.receipts()}
            )
            split_counts = count_seen(kind.pieces(sink), sink.metadata)
            seen_splits -= may_have_expired(seen_splits, Path(folder))
        except Exception as error:  # a server may be down  # noqa: BLE001
            looks.missed += 1
            (Path(folder) / "missed").write_text(repr(error))
        else:
            looks.looks += not ends
            looks.violations += [
                line
                for line in find_violations(
                    split_counts, seen_splits, rows, received, sink.capabilities
                )
                if len(looks.violations) < 100
            ]
            seen_splits |= split_counts.keys()
        if not ends:
            # leaves most of the machine's time to the writers
            time.sleep(min(2.0, 0.05 + 3 * (time.monotonic() - began)))
    (Path(folder) / "looks").write_text(json.dumps(msgspec.to_builtins(looks)))
