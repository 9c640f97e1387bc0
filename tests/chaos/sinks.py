"""The kinds of sinks that chaos is let loose on: one line each.

A world is a module with `sink_at(place)`, the sink with its dead letters as another
process opens it, and `pieces(sink)`, all rows that readers see. It may have besides:

    TWINS                   name -> sink_at of a broken twin, which the harness must catch
    LOCKS = True            a run that is stopped may hold what others wait for, and nothing takes
                            it from it
    LOCKS_BETWEEN = True    the same, but at no named point
    POINTS                  crash points of its own, beside those of every run
    BETWEEN                 the point between look and write, if it isn't `commit.before`
    ARRIVED                 the points behind the commit, if they aren't `commit.after` and
                            `report.before`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.chaos import servers, twins
from windrow.ingest.crashpoints import CrashPoint

POINTS: tuple[CrashPoint, ...] = (
    "plan.before",
    "plan.after",
    "write.middle",
    "write.after",
    "dead.before",
    "commit.before",
    "commit.after",
    "report.before",
)
"""Where an attempt may die: all that a run comes by once the boundaries are frozen."""


@contextmanager
def _beside(folder: Path) -> Iterator[str]:
    yield str(folder / "orders")


@contextmanager
def _keyed(folder: Path) -> Iterator[str]:
    yield str(folder / "orders-keyed")


@dataclass(frozen=True)
class Kind:
    """`module`: the world. `placed`: a new place in a folder, with the server that it needs.

    `strikes`: what may happen to that server, by name; each returns when the server is
    up again. `own`: broken twins at a place, by name, beside those of the world; the
    harness must catch each.
    """

    module: str
    placed: Callable[[Path], AbstractContextManager[str]] = _beside
    strikes: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    own: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)

    @property
    def world(self) -> Any:
        """Loaded when it is asked for."""
        return import_module(self.module)

    @property
    def twins(self) -> dict[str, Callable[[str], Any]]:
        """All broken ones."""
        return {**getattr(self.world, "TWINS", {}), **self.own}

    @property
    def locks(self) -> bool:
        """See LOCKS."""
        return bool(getattr(self.world, "LOCKS", False))

    @property
    def locks_between(self) -> bool:
        """See LOCKS_BETWEEN."""
        return bool(getattr(self.world, "LOCKS_BETWEEN", False))

    @property
    def points(self) -> tuple[CrashPoint, ...]:
        """`POINTS`, and the sink's own."""
        return (*POINTS, *getattr(self.world, "POINTS", ()))

    @property
    def between(self) -> CrashPoint:
        """See BETWEEN."""
        return getattr(self.world, "BETWEEN", "commit.before")

    @property
    def arrived(self) -> tuple[CrashPoint, ...]:
        """Points behind the commit: who dies there has committed."""
        return getattr(self.world, "ARRIVED", ("commit.after", "report.before"))

    def sink_at(self, place: str, twin: str | None = None) -> Any:
        """The sink, or a broken twin of it."""
        return self.world.sink_at(place) if twin is None else self.twins[twin](place)


_BROKER = {"broker killed": servers.kill_broker, "broker stopped": servers.stop_broker}
_KAFKA = "tests.sinks.kafka.world"
_BACKENDS = {"postmaster killed": servers.kill_postmaster, "backends ended": servers.end_backends}

SINKS: dict[str, Kind] = {
    "delta": Kind("tests.sinks.delta.world", own={"append-by-path": twins.append_by_path}),
    "delta-keyed": Kind("tests.sinks.delta.keyed_world", _keyed),
    "iceberg": Kind("tests.sinks.iceberg.world"),
    "files": Kind("tests.sinks.files.world"),
    "postgres": Kind(
        "tests.sinks.postgres.world",
        servers.postgres,
        _BACKENDS,
        {"look-then-write": twins.look_then_write},
    ),
    "postgres-keyed": Kind("tests.sinks.postgres.keyed_world", servers.postgres, _BACKENDS),
    "kafka": Kind(_KAFKA, servers.kafka, _BROKER, {"random-id": twins.random_id}),
    "routes": Kind("tests.sinks.routes.world", own={"window-first": twins.window_first}),
    "sqlite": Kind("tests.sinks.sqlite.world", own={"receipt-first": twins.receipt_first}),
}

WEAKER: dict[str, Kind] = {
    "kafka-at-least-once": Kind(
        _KAFKA,
        partial(servers.kafka, delivery="at-least-once"),
        _BROKER,
        {"record-first": twins.record_first},
    ),
    "kafka-none": Kind(_KAFKA, partial(servers.kafka, delivery="none"), _BROKER),
}
"""Those that promise less than exactly once: what they don't promise is counted, and
isn't wrong (`Capabilities.allows`).
"""

KINDS = {**SINKS, **WEAKER}
