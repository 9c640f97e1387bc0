"""A reader that looks again and again while all else goes wrong, in a process of its
own, and writes down what it should not have seen.
"""

from __future__ import annotations

import json
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from tests.chaos.verdict import count_seen, find_violations
from tests.sinks.worlds import world_of
from tests.warm import SERVER


class Looks(msgspec.Struct):
    """What a reader has to say.

    `looks`: those while others wrote. `missed`: looks that failed, as they may while a server is
    down.
    """

    looks: int = 0
    missed: int = 0
    violations: list[str] = []


def start(kind: str, location: str, rows: int, folder: Path) -> BaseProcess:
    """Begin; it ends when the file `quiet` is there."""
    process = SERVER.Process(target=_look_on, args=(kind, location, rows, str(folder)))
    process.start()
    return process


def last_look(process: BaseProcess, folder: Path) -> Looks:
    """Have it look a last time, and end."""
    (folder / "quiet").touch()
    process.join(120)
    assert process.exitcode == 0, f"the reader ended with {process.exitcode}"
    return msgspec.json.decode((folder / "looks").read_bytes(), type=Looks)


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
            # so that most of the machine is the writers'
            time.sleep(min(2.0, 0.05 + 3 * (time.monotonic() - began)))
    (Path(folder) / "looks").write_text(json.dumps(msgspec.to_builtins(looks)))
