"""The cost of a table's committed windows for the next window.

It measures a process's first look and first commit, later commits, and the skip of a committed
window. The sink itself commits the windows without syncing to disk, so that thousands take
minutes. Each measurement is in its own process on the same table. The process's commits stay in
the table.
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
from tests.sinks.kafka.world import create_location as new_topic
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
"""The number of later commits, and of looks at committed windows.

One of the commits writes a checkpoint of a Delta table.
"""

ROUNDS = 3
UPKEEP = 500
"""The number of windows after which the sink's table is maintained, as its owner would do."""


class Cost(NamedTuple):
    """Costs in milliseconds.

    Attributes:
        first_look: the first look of a process at the table.
        first_commit: the first commit of a process.
        later_commit: the mean of the later commits, because only some of them do extra work.
        skip: a look at a committed window.
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
    """A kind of sink.

    Attributes:
        location: makes a place for a table below a folder.
        open: opens the sink at a place, as any process does.
        keep_up: maintains the sink's table.
    """

    location: Callable[[Path], AbstractContextManager[str]]
    open: Callable[[str], Any]
    keep_up: Callable[[Any], None] = lambda _: None


KINDS = {
    "delta": Kind(partial(_folder, "table"), world_of("delta").sink_at),
    "delta-keyed": Kind(partial(_folder, "table-keyed"), world_of("delta-keyed").sink_at),
    # Iceberg rewrites the list of snapshots with each commit, so owners expire old snapshots.
    "iceberg": Kind(partial(_folder, "warehouse"), world_of("iceberg").sink_at, expire),
    "iceberg-keyed": Kind(
        partial(_folder, "warehouse-keyed"), world_of("iceberg-keyed").sink_at, expire
    ),
    "parquet": Kind(partial(_folder, "files-parquet"), world_of("files").sink_at),
    "postgres": Kind(_database, world_of("postgres").sink_at),
    "sqlite": Kind(partial(_folder, "orders.sqlite"), world_of("sqlite").sink_at),
    "kafka": Kind(_topic, world_of("kafka").sink_at),
    "routes": Kind(partial(_folder, "tables"), _routed_at),
}


def make(kind: Kind, location: str, windows: int) -> None:
    """Makes a table with this number of windows."""
    sink = kind.open(location)
    sink.prepare(OWNER)
    with patch.object(os, "fsync", lambda _: None):
        for number in range(windows):
            _commit(sink, *staged_receipt(sink, number, dead=False))
            if number % UPKEEP == UPKEEP - 1:
                kind.keep_up(sink)


def cost(kind: str, windows: int, scratch: Path) -> Cost:
    """Returns the median costs of several processes for a table with this number of windows.

    The commits of earlier processes stay in the table.
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
    """Returns a printed line."""
    return (
        f"{kind:>11}, {windows:>7,} committed windows: first look {cost.first_look:.1f} ms, first"
        f" commit {cost.first_commit:.1f} ms, later ones {cost.later_commit:.1f} ms, a window"
        f" that is there {cost.skip:.2f} ms"
    )


def _measure(kind: Kind, location: str, windows: int, scratch: Path) -> Cost:
    """Measures the costs in this process.

    The process has looked only at a Delta table before, because one-time loading isn't a
    table's cost.
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
