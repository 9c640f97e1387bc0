"""Sources of lookups: tables and services that are asked for column values, by keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from windrow.ingest.errors import check_output

T = TypeVar("T")

MOST_BYTES = 256 << 20
"""Limits of a worker's memory: a table that a lookup holds, and the answers that it keeps.

Each of the two has this limit.
"""

PIN_ANEW = (
    " The window keeps to the version that it is pinned to; with --fresh-lookups (in Dagster"
    " fresh_lookups: true) it is pinned anew, to the newest one."
)
"""The advice about a version that a window can't use."""


@dataclass(frozen=True)
class Answers:
    """The rows of a source that have one of the keys, in any order.

    Attributes:
        rows: rows with the columns that were asked for. Keys without a row are left out, and
            rows of other keys don't count.
        requests: number of requests to the source.
        refused: keys that the source refuses or whose rows can't be read, by the reason.
            Reasons have no payload.
    """

    rows: pa.Table
    requests: int
    refused: Mapping[str, pa.Table] = field(default_factory=dict)


Ask = Callable[[pa.Table], Answers]
"""Asks for the rows of keys, under the names of the source's columns.

The keys are distinct and sorted, without nulls. Integer keys are int64, also if the source has
another type. A key that the source can't have has no answer.
"""


class LookupSource(Protocol):
    """A table or service. Picklable, and cheap to pickle."""

    @property
    def identity(self) -> str:
        """The name of the table or service and its place, without secrets."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a version gives the same answers again, in another try or a replay."""

    def version(self) -> str:
        """Returns the version of the source now, to pin a window to.

        Empty if the source can't be asked for this version later.

        Raises:
            SpecError: it doesn't exist.
            UnreachableError: it doesn't answer.
        """

    def schema(self) -> pa.Schema:
        """Returns the columns that the source has now, with the types of a windrow table.

        A column whose type no table has is left out.

        Raises:
            SpecError: it doesn't exist.
            UnreachableError: it doesn't answer.
        """

    def hold(self, version: str, tasks: int) -> AbstractContextManager[str]:
        """Keeps a version readable for the tasks of a job.

        Args:
            version: the version.
            tasks: largest number of tasks that run at the same time.

        Returns:
            A context manager, whose value is the version that the tasks pass to `open`.

        Raises:
            SpecError, UnreachableError: as `version`.
        """

    def open(self, version: str, columns: pa.Schema) -> Ask:
        """Returns a function that asks for rows of a version, with some columns.

        It is for the calling thread and at most one split. It reads nothing before it is
        called.

        Raises (when the function is called):
            RefusedError: the version can't be read any more, or its columns or their types are
                others.
            SpecError: the rows need more memory than a worker can hold.
            UnreachableError: the source doesn't answer.
        """


class SearchedSource(LookupSource, Protocol):
    """A source that a worker can hold in memory and search by other values than keys."""

    def load(
        self, version: str, columns: pa.Schema, build: Callable[..., Any], recipe: Hashable
    ) -> Any:
        """Calls `build` with all rows of a version, with some columns, and returns its result.

        The worker keeps the result for its next splits.

        Args:
            version: the version.
            columns: the columns.
            build: the function. It is called with the batches, their schema and `recipe`.
            recipe: settings of `build`.

        Raises:
            RefusedError, SpecError, UnreachableError: as the function that `open` returns.
        """


@runtime_checkable
class KeepsVersions(Protocol):
    """A source that keeps older versions for some time."""

    def replaced_at(self, version: str) -> datetime | None:
        """Returns when a newer version replaced this one; None if that isn't known.

        It is None for the newest version.

        Raises:
            RefusedError: the version can't be read any more.
            SpecError, UnreachableError: as `LookupSource.version`.
        """


@runtime_checkable
class LooksUp(Protocol):
    """A transform with lookups, or a decoder that has such transforms."""

    def sources(self) -> Mapping[str, LookupSource]:
        """Returns the source of each of its lookups, by the lookup's name."""

    def pinned(self, versions: Mapping[str, str]) -> Any:
        """Returns this transform, with a version for each of its lookups.

        A lookup that has no version asks for the newest.
        """


def version_of(source: LookupSource) -> str:
    """Returns the version of a source now.

    Raises:
        SpecError, UnreachableError: as `LookupSource.version`.
        BugError: the source, which may be a plugin, returns another type than text.
    """
    return check_output(source, source.version(), str)


def sources_of(parts: Iterable[object]) -> Mapping[str, LookupSource]:
    """Returns the source of each lookup of some transforms or decoders, by the lookup's name."""
    return {
        name: source
        for part in parts
        if isinstance(part, LooksUp)
        for name, source in part.sources().items()
    }


def pinned(part: T, versions: Mapping[str, str]) -> T:
    """Returns a transform or decoder, with versions for its lookups, by their names."""
    return part.pinned(versions) if isinstance(part, LooksUp) else part
