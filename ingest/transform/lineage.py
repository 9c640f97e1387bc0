"""Which columns each column of a transform's rows comes from."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.ingest.ports.transform import Transform
from windrow.ingest.schema.columns import Columns
from windrow.ingest.transform.chain import Chain
from windrow.ingest.transform.sql.step import Sql


def sources(transform: Transform, before: Columns) -> Mapping[str, frozenset[str]]:
    """The columns of the rows `before` that each column of its result depends on.

    Metadata columns that a SELECT reads are among them. Of a transform that doesn't say,
    a column depends on the one of its name.

    Raises:
        SpecError: it can't use such columns.
    """
    if isinstance(transform, Sql):
        select = transform.select([c.name for c in before.columns])
        return {output.name: output.reads for output in select.outputs}
    if not isinstance(transform, Chain):
        return {c.name: frozenset({c.name}) for c in transform.columns(before).columns}
    found = {c.name: frozenset({c.name}) for c in before.columns}
    for each in transform.transforms:
        found = {
            name: frozenset[str]().union(*(found.get(read, {read}) for read in reads))
            for name, reads in sources(each, before).items()
        }
        before = each.columns(before)
    return found
