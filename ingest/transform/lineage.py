"""Which columns each column of a transform's rows comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from windrow.ingest.ports.transform import Transform
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import load_model
from windrow.ingest.transform.chain import Chain
from windrow.ingest.transform.lookup.step import Lookup
from windrow.ingest.transform.python.step import Python
from windrow.ingest.transform.sql.step import Sql

Source: TypeAlias = str | tuple[str, str]
"""A column of the rows before a transform; or a lookup, and a column of what it looks up in."""


def sources(transform: Transform, names: Sequence[str]) -> Mapping[str, frozenset[Source]]:
    """The columns of the rows before it, and of lookups, that each column of its result depends on.

    `names`: the columns of those rows. Metadata columns that a SELECT reads are among what is
    returned. Of a function, a column depends on the one of its name, and so it does of any other
    step, but for the columns that its `reads` has. Asks no source of a lookup.

    Raises:
        SpecError: it can't use such columns.
    """
    if isinstance(transform, Chain):
        found: Mapping[str, frozenset[Source]] = {name: frozenset({name}) for name in names}
        for each in transform.transforms:
            found = {
                name: frozenset[Source]().union(
                    *(
                        found.get(read, {read}) if isinstance(read, str) else {read}
                        for read in reads
                    )
                )
                for name, reads in sources(each, list(found)).items()
            }
        return found
    if isinstance(transform, Sql):
        return {output.name: output.reads for output in transform.select(list(names)).outputs}
    if isinstance(transform, Python):
        names = [column.name for column in Columns.of(load_model(transform.model)).columns]
    itself = {name: frozenset({name}) for name in names}
    reads: dict[str, frozenset[Source]] = {**itself, **getattr(transform, "reads", {})}
    if isinstance(transform, Lookup):
        for column, name in transform.take:
            gives = [name] if name in reads else transform.gives  # of `nearest` one has all
            reads |= {to: reads[to] | {(transform.name, column)} for to in gives}
    return reads
