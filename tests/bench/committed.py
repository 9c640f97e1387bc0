"""What a table's committed windows cost the next one: a process's first look and first
commit, later commits, and a window that is there.

The windows are committed by the sink itself, with nothing synced to disk by it, so that
thousands take minutes. Each measurement is of a process of its own, on the same table:
each leaves there what it has committed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.bench.harness.servers import postgres
from tests.bench.iceberg import expire
from tests.sinks.kafka.world import new_place as new_topic
from tests.sinks.routes.world import FIRST, SECOND, RoutedBoth
from tests.sinks.with_dead_letters import DeltaSink
from tests.sinks.worlds import world_of
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.kind import delta_dead_letters
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

COMMITS = 100
"""Later commits, and looks at windows that are there: one checkpoint of a Delta table
is among them.
"""

ROUNDS = 3
UPKEEP = 500
"""While windows are made, a table is kept as its owner would keep it after so many."""


class Cost(NamedTuple):
    """In milliseconds; commits later than the first by their mean, for what only some
    of them do counts.
    """

    first_look: float
    first_commit: float
    later_commit: float
    skip: float


@contextmanager
def _folder(name: str, scratch: Path) -> Iterator[str]:
    yield str(scratch / name)


@contextmanager
def _topic(scratch: Path) -> Iterator[str]:
    with EmbeddedBroker(scratch / "kafka", find_jars()) as broker:
        yield new_topic(broker.bootstrap, f"{scratch}/staging")


@contextmanager
def _database(scratch: Path) -> Iterator[str]:
    with postgres(scratch / "postgres") as url:
        yield f"{url}#public.orders"


def _routed_at(location: str) -> RoutedBoth:
    first, second, rest = (
        DeltaSink(f"{location}/{name}", ROWS, DEFAULT) for name in ("first", "second", "other")
    )
    return RoutedBoth(
        [(FIRST, first), (SECOND, second)], rest, delta_dead_letters(rest.uri), ROWS, DEFAULT
    )


@dataclass(frozen=True)
class Kind:
    """A kind of sink: makes a place for a table below a folder, opens the sink at a
    place as any process does, and keeps its table up.
    """

    location: Callable[[Path], AbstractContextManager[str]]
    open: Callable[[str], Any]
    keep_up: Callable[[Any], None] = lambda _: None


KINDS = {
    "delta": Kind(partial(_folder, "table"), world_of("delta").sink_at),
    "delta-keyed": Kind(partial(_folder, "table-keyed"), world_of("delta-keyed").sink_at),
    # Iceberg writes every snapshot anew with each commit, so an owner lets them expire;
    # what is measured has those since the last time.
    "iceberg": Kind(partial(_folder, "warehouse"), world_of("iceberg").sink_at, expire),
    "parquet": Kind(partial(_folder, "files-parquet"), world_of("files").sink_at),
    "postgres": Kind(_database, world_of("postgres").sink_at),
    "sqlite": Kind(partial(_folder, "orders.sqlite"), world_of("sqlite").sink_at),
    "kafka": Kind(_topic, world_of("kafka").sink_at),
    "routes": Kind(partial(_folder, "tables"), _routed_at),
}


def make(kind: Kind, location: str, windows: int) -> None:
    """A table that holds so many windows."""
    sink = kind.open(location)
    sink.prepare(OWNER)
    with patch.object(os, "fsync", lambda _: None):
        for number in range(windows):
            _commit(sink, *staged_receipt(sink, number, dead=False))
            if number % UPKEEP == UPKEEP - 1:
                kind.keep_up(sink)


def cost(kind: str, windows: int, scratch: Path) -> Cost:
    """The medians of several processes at a table of so many windows, and those that
    the processes before have committed.
    """
    scratch.mkdir()
    rounds = []
    with KINDS[kind].location(scratch) as location:
        make(KINDS[kind], location, windows)
        for number in range(ROUNDS):
            command = [
                sys.executable,
                "-m",
                "tests.bench.committed",
                kind,
                location,
                str(windows + number * (COMMITS + 1)),
                str(scratch),
            ]
            output = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, timeout=600
            ).stdout
            rounds.append(Cost(*json.loads(output)))
    return Cost(*map(statistics.median, zip(*rounds, strict=True)))


def line_of(kind: str, windows: int, cost: Cost) -> str:
    """A line for people."""
    return (
        f"{kind:>11}, {windows:>7,} committed windows: first look {cost.first_look:.1f} ms, first"
        f" commit {cost.first_commit:.1f} ms, later ones {cost.later_commit:.1f} ms, a window"
        f" that is there {cost.skip:.2f} ms"
    )


def _measure(kind: Kind, location: str, windows: int, scratch: Path) -> Cost:
    """In this process, which has looked at nothing yet but for a Delta table: what is
    loaded, and begun, once is not a table's cost.
    """
    warm = world_of("delta").sink_at(f"{scratch}/warm {windows}")
    warm.prepare(OWNER)
    _commit(warm, *staged_receipt(warm, 0, dead=False))
    sink = kind.open(location)
    staged = [staged_receipt(sink, windows + number, dead=False) for number in range(COMMITS + 1)]
    look = _milliseconds_of(lambda: sink.look(window(0)))
    commits = [
        _milliseconds_of(partial(_commit, sink, *receipt_and_staged))
        for receipt_and_staged in staged
    ]
    skip = (
        _milliseconds_of(lambda: list(sink.looks([window(n % windows) for n in range(COMMITS)])))
        / COMMITS
    )
    return Cost(look, commits[0], statistics.fmean(commits[1:]), skip)


def _commit(sink: Any, *receipt_and_staged: object) -> None:
    assert isinstance(sink.commit(*receipt_and_staged), Done)


def _milliseconds_of(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    print(
        json.dumps(_measure(KINDS[sys.argv[1]], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
    )
