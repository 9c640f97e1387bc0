"""Sources of lookups: tables and services that columns are looked up in, by keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from windrow.ingest.errors import check_output
from windrow.ingest.ports.transform import Transform

MOST_BYTES = 256 << 20
"""The most memory of a worker that a lookup may take, for a table, and for the answers."""


@dataclass(frozen=True)
class Answers:
    """The rows of a source that have one of the keys, in any order.

    `rows` has the columns that were asked for; keys without a row are left out, and rows of
    other keys don't count. `requests`: how often the source was asked for them. `refused`: keys
    that it refuses, or whose rows can't be read, by the reason, in words without payload.
    """

    rows: pa.Table
    requests: int
    refused: Mapping[str, pa.Table] = field(default_factory=dict)


Ask = Callable[[pa.Table], Answers]
"""Asks for keys: distinct, without nulls and sorted, under the names of the source's columns.

Whole numbers are int64, whatever the source has; keys that it can't have have no answer.
"""


class LookupSource(Protocol):
    """A table or service. Picklable, and cheap to pickle."""

    @property
    def identity(self) -> str:
        """What is looked up in, and where, without secrets."""

    @property
    def repeats(self) -> bool:
        """Whether a version gives the same answers again, in another try or a replay."""

    def version(self) -> str:
        """Its version now, to pin a window to; empty if it can't be asked for it later.

        Raises:
            SpecError: it doesn't exist.
            UnreachableError: it doesn't answer.
        """

    def schema(self) -> pa.Schema:
        """The columns that it has now, with the types that a windrow table has for them.

        A column whose type no table has is left out.

        Raises:
            SpecError: it doesn't exist.
            UnreachableError: it doesn't answer.
        """

    def hold(self, version: str, tasks: int) -> AbstractContextManager[str]:
        """Holds a version for the tasks of a job; gives what they `open`.

        `tasks`: the most that may run at once.

        Raises:
            SpecError, UnreachableError: as `version`.
        """

    def open(self, version: str, columns: pa.Schema) -> Ask:
        """Returns a function that asks for rows of a version, with some columns.

        It is for the calling thread and at most one split. Nothing is read before it is
        called.

        Raises (when it is called):
            RefusedError: the version can't be read any more, or columns or their types are
                others in it.
            SpecError: there is more than a worker can hold.
            UnreachableError: the source doesn't answer.
        """


class SearchedSource(LookupSource, Protocol):
    """A source that a worker can hold, and search by other things than keys."""

    def load(
        self, version: str, columns: pa.Schema, build: Callable[..., Any], recipe: Hashable
    ) -> Any:
        """What `build` makes of all rows of a version, with some columns.

        It is called with the batches, their schema and `recipe`; what it makes is kept for the next
        splits of the same worker.

        Raises:
            RefusedError, SpecError, UnreachableError: as the function that `open` returns.
        """


@runtime_checkable
class LooksUp(Protocol):
    """A transform with lookups."""

    def sources(self) -> Mapping[str, LookupSource]:
        """The source of each of its lookups, by the lookup's name."""

    def pinned(self, versions: Mapping[str, str]) -> Transform:
        """This transform, with a version for each of its lookups.

        A lookup that has none asks for the version of the moment.
        """


def version_of(source: LookupSource) -> str:
    """Returns the version of a source now.

    Raises:
        SpecError, UnreachableError: as `LookupSource.version`.
        BugError: the source, which may be a plugin's, gives something else.
    """
    return check_output(source, source.version(), str)


def sources_of(transforms: Iterable[Transform]) -> Mapping[str, LookupSource]:
    """Returns the source of each lookup of some transforms, by the lookup's name."""
    return {
        name: source
        for transform in transforms
        if isinstance(transform, LooksUp)
        for name, source in transform.sources().items()
    }


def pinned(transform: Transform, versions: Mapping[str, str]) -> Transform:
    """Returns a transform whose lookups ask these versions, by their names."""
    return transform.pinned(versions) if isinstance(transform, LooksUp) else transform
