"""Refuses routes to the same table, or to tables in each other's folders, also through links.

Two routes to one table would lose rows, because the second commit finds the first one's window:

    1 A commits the rows of `first` to a table.  2 A commits those of `other` to the same table
    under another name. The table has the window already, so nothing is written.

A table in another table's folder loses its files to the other one's clean-up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.sink import Sink
from windrow.ingest.settings.places import is_url
from windrow.ingest.sinks.place import dead_place


def refuse_not_apart(tables: Sequence[Sink], other: Sink) -> None:
    """Checks that each table, and the dead letters of `other`, have folders of their own.

    Raises:
        SpecError: two of them don't; the error names them.
    """
    every = (*tables, other)
    for one, another in combinations(every, 2):
        if one.identity == another.identity or one.is_at(another.identity):
            raise SpecError(
                f"two routes lead to {one.identity}",
                "spec",
                "Put their values under one route, or name another table.",
            )
    folders = [
        *_folders(sink.identity for sink in every),
        *map(dead_place, _folders([other.identity])),
    ]
    for one_folder, another_folder in combinations(folders, 2):
        if _overlap(one_folder, another_folder):
            what = (
                f"{one_folder} and {another_folder}, for a table or dead letters each, are one"
                " folder, or one lies in the other"
            )
            raise SpecError(
                what,
                "spec",
                "Give each table a folder beside the others: one's clean-up would remove the"
                " other's files.",
            )


def _folders(identities: Iterable[str]) -> list[str]:
    """Folders of those tables that are folders: their identities without the kind."""
    places = (identity.partition(":")[2] for identity in identities)
    return [place for place in places if is_url(place) or Path(place).is_absolute()]


def _overlap(one: str, another: str) -> bool:
    first, second = (
        f"{place if is_url(place) else os.path.realpath(place)}/" for place in (one, another)
    )
    return first.startswith(second) or second.startswith(first)
