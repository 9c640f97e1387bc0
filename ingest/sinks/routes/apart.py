"""Whether several tables lie apart from each other, however their places are spelt: by
links, or one in another one's folder.

Two routes to one table would lose rows. What the first one's commit brings, the second
one's finds there, and takes for its own:

    1 A commits the rows of `first` to a table.  2 It commits those of `other` to the
    same one by another name, which has the window: done.

And a table whose folder lies in another one's loses its files to that one's clean-ups,
which remove what their own log doesn't name.
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
    """See that each table is one of its own, with a folder of its own, as the dead
    letters have one, which lie beside `other`.

    Looks at links.

    Raises:
        SpecError: naming two that are not.
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
    """Of those tables that are a folder, where it is: that is the rest of what they are
    called, behind their kind.
    """
    places = (identity.partition(":")[2] for identity in identities)
    return [place for place in places if is_url(place) or Path(place).is_absolute()]


def _overlap(one: str, another: str) -> bool:
    first, second = (
        f"{place if is_url(place) else os.path.realpath(place)}/" for place in (one, another)
    )
    return first.startswith(second) or second.startswith(first)
