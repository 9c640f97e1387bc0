"""The kinds of sinks that chaos is let loose on: one line each.

A world is a module with `sink_at(place)`, the sink with its dead letters as another process opens it, and `pieces(sink)`, all rows that
readers see. It may have besides:

    TWINS                   name -> sink_at of a broken twin, which the harness must catch
    age(place)              makes all that is staged look as old as a sweep asks for
    LOCKS = True            a run that is stopped may hold what others wait for, and nothing takes it from it
    LOCKS_BETWEEN = True    the same, but at no named point
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.chaos import servers, twins


@contextmanager
def _beside(folder: Path) -> Iterator[str]:
    yield str(folder / "orders")


@contextmanager
def _keyed(folder: Path) -> Iterator[str]:
    yield str(folder / "orders-keyed")


@dataclass(frozen=True)
class Kind:
    """`module`: the world. `placed`: a new place in a folder, with the server that it needs.

    `strikes`: what may happen to that server, by name; each returns when the server is up again. `own`: broken twins at a place, by name,
    beside those of the world; the harness must catch each.
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

    def sink_at(self, place: str, twin: str | None = None) -> Any:
        """The sink, or a broken twin of it."""
        return self.world.sink_at(place) if twin is None else self.twins[twin](place)


_BACKENDS = {"postmaster killed": servers.kill_postmaster, "backends ended": servers.end_backends}

SINKS: dict[str, Kind] = {
    "delta": Kind("tests.sinks.delta.world", own={"append-by-path": twins.append_by_path}),
    "delta-keyed": Kind("tests.sinks.delta.keyed_world", _keyed),
    "iceberg": Kind("tests.sinks.iceberg.world"),
    "files": Kind("tests.sinks.files.world"),
    "postgres": Kind("tests.sinks.postgres.world", servers.postgres, _BACKENDS, {"look-then-write": twins.look_then_write}),
    "sqlite": Kind("tests.sinks.sqlite_world", own={"receipt-first": twins.receipt_first}),
}
