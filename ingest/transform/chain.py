"""Several transforms as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa

from windrow.ingest.errors import SpecError, check_output, name_with_owner
from windrow.ingest.ports.decoder import Decoded, checked_verdict
from windrow.ingest.ports.lookup import LookupSource, pinned, sources_of
from windrow.ingest.ports.transform import Apply, ColumnSource, Transform, column_sources
from windrow.ingest.schema.columns import REST, Columns
from windrow.ingest.schema.dtypes import column_name_problems


def columns_after(transform: Transform, input_columns: Columns) -> Columns:
    """Returns the columns of a transform's result.

    Raises:
        SpecError: the transform can't use `input_columns`; or it gives two columns, or two
            fields of a struct, whose names are the same for a table.
    """
    columns = check_output(transform, transform.columns(input_columns), Columns)
    mistakes = [*column_name_problems(columns.arrow_schema)]
    if mistakes:
        prefix = f"{getattr(transform, 'setting', name_with_owner(transform))} can't be used: "
        raise SpecError(
            prefix + "; ".join(mistakes), "spec", "Give each column another name. Nothing was read."
        )
    return columns


@dataclass(frozen=True)
class Chain:
    """Transforms in the order in which they are applied.

    Without transforms, rows stay as they were decoded.

    Attributes:
        transforms: the transforms.
        passes_rest: whether rows have the column `REST`. It passes by the transforms, which
            get it as `Decoded.rest`.
    """

    transforms: tuple[Transform, ...] = ()
    passes_rest: bool = False

    def columns(self, input_columns: Columns) -> Columns:
        """Returns the columns of the last transform's result.

        Raises:
            SpecError: see `columns_after`.
        """
        seen = [c for c in input_columns.columns if not (self.passes_rest and c.name == REST)]
        columns = reduce(
            lambda columns, transform: columns_after(transform, columns),
            self.transforms,
            replace(input_columns, columns=tuple(seen)),
        )
        return columns.with_rest() if self.passes_rest else columns

    def column_sources(self, names: Sequence[str]) -> Mapping[str, frozenset[ColumnSource]]:
        sources: Mapping[str, frozenset[ColumnSource]] = {name: frozenset({name}) for name in names}
        for transform in self.transforms:
            previous_sources, sources = sources, column_sources(transform, list(sources))
            sources = {
                name: frozenset[ColumnSource]().union(
                    *(
                        previous_sources.get(read, {read}) if isinstance(read, str) else {read}
                        for read in reads
                    )
                )
                for name, reads in sources.items()
            }
        return {**sources, REST: frozenset({REST})} if self.passes_rest else sources

    def sources(self) -> Mapping[str, LookupSource]:
        return sources_of(self.transforms)

    def pinned(self, versions: Mapping[str, str]) -> Transform:
        transforms = tuple(pinned(transform, versions) for transform in self.transforms)
        return replace(self, transforms=transforms)

    def open(self) -> Apply:
        steps = [
            (transform, check_output(transform, transform.open(), "__call__"))
            for transform in self.transforms
        ]

        def apply(decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
            return reduce(
                lambda rows, step: checked_verdict(step[0], step[1](rows, messages)), steps, decoded
            )

        def apply_beside_rest(decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
            rows, rest = decoded.rows.drop_columns([REST]), decoded.rows.column(REST)
            transformed = apply(replace(decoded, rows=rows, rest=rest), messages)
            rows = transformed.rows.append_column(REST, transformed.rest)
            return replace(transformed, rows=rows, rest=None)

        return apply_beside_rest if self.passes_rest else apply
