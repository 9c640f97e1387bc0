"""Several routes as one decoder: each message becomes rows of its table alone.

Rows have a column for each table: a struct of the table's own columns. It is null in rows of the
other tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.shared.decoded import nothing, refuse_all, together
from windrow.ingest.model.lookup import merge_parts
from windrow.ingest.ports.decoder import SCHEMA, Decode, Decoded, Decoder, checked_verdict
from windrow.ingest.ports.lookup import LookupSource, pinned, sources_of
from windrow.ingest.ports.schema_registry import (
    OnSchema,
    PreparedDecoder,
    SchemaRegistry,
    UsesSchemas,
)
from windrow.ingest.ports.transform import Transform
from windrow.ingest.schema.columns import Column, Columns


@dataclass(frozen=True)
class Route:
    """The way from messages to the rows of one table.

    Attributes:
        name: the name of the column with the rows.
        decoder: decodes the messages.
        transform: changes the decoded rows.
    """

    name: str
    decoder: Decoder
    transform: Transform


@dataclass(frozen=True)
class RoutedDecoder:
    """Decodes and transforms each message by its route (`ports.schema_registry.UsesSchemas`).

    Attributes:
        routes: the routes. The last one is that of all messages of no other route.
        router: finds the routes (`ingest.sinks.routes.stage.Router`). Picklable.
    """

    routes: tuple[Route, ...]
    router: Any

    @property
    def columns(self) -> Columns:
        if self.router.routed_by == "column":
            self.router.check_columns(self.routes[-1].decoder.columns.arrow_schema)
        structs = [
            Column(r.name, pa.struct(list(columns.arrow_schema)), nullable=True)
            for r in self.routes
            for columns in [r.transform.columns(r.decoder.columns)]
        ]
        return Columns(tuple(structs))

    def sources(self) -> Mapping[str, LookupSource]:
        """Returns the sources of the lookups in all routes (`ports.lookup.LooksUp`)."""
        return sources_of(route.transform for route in self.routes)

    def pinned(self, versions: Mapping[str, str]) -> RoutedDecoder:
        """Returns this decoder, with a version for each of its lookups."""
        routes = (replace(r, transform=pinned(r.transform, versions)) for r in self.routes)
        return replace(self, routes=tuple(routes))

    @property
    def _asking(self) -> Mapping[str, UsesSchemas]:
        """The decoders that ask for schemas, by their routes' names.

        The last one isn't among them if it decodes nothing.
        """
        is_unused = self.router.refuses_others and self.router.routed_by != "column"
        used = self.routes[:-1] if is_unused else self.routes
        return {r.name: r.decoder for r in used if isinstance(r.decoder, UsesSchemas)}

    def _with(self, decoders: Mapping[str, Any]) -> RoutedDecoder:
        """Returns this decoder with other decoders of some routes, by the routes' names."""
        routes = (replace(r, decoder=decoders.get(r.name, r.decoder)) for r in self.routes)
        return replace(self, routes=tuple(routes))

    def asking(self, registry: SchemaRegistry) -> RoutedDecoder:
        return self._with({name: d.asking(registry) for name, d in self._asking.items()})

    def with_schemas(self, schemas: Sequence[Any]) -> RoutedDecoder:
        return self._with({name: d.with_schemas(schemas) for name, d in self._asking.items()})

    def prepared(self, topics: Sequence[str]) -> PreparedDecoder:
        parts = {name: decoder.prepared(topics) for name, decoder in self._asking.items()}
        schemas = dict.fromkeys(schema for part in parts.values() for schema in part.schemas)
        return PreparedDecoder(
            self._with({name: part.decoder for name, part in parts.items()}), list(schemas)
        )

    def schema_ids(self, messages: pa.RecordBatch, stages: pa.StringArray) -> pa.StringArray:
        """Returns the schema id of each message, as the first decoder reads it that knows ids."""
        for decoder in self._asking.values():
            return decoder.schema_ids(messages, stages)
        return pa.nulls(messages.num_rows, pa.string())

    def open(self) -> Decode:
        return self.open_reporting(lambda _schema, _requested: None)

    def open_reporting(self, on_schema: OnSchema) -> Decode:
        """Opens all decoders and transforms.

        If a column leads to the table, the last decoder reads it. Other decoders then read the
        value again, unless they are the same.
        """
        schema, others = self.columns.arrow_schema, len(self.routes) - 1
        decodes = [
            d.open_reporting(on_schema) if isinstance(d, UsesSchemas) else d.open()
            for d in (route.decoder for route in self.routes)
        ]
        steps = [route.transform.open() for route in self.routes]
        is_shared = [route.decoder == self.routes[others].decoder for route in self.routes]
        is_shared[others] = not self.router.refuses_others

        def decode_some(number: int, messages: pa.RecordBatch, index: pa.Int64Array) -> Decoded:
            """Decodes some of the messages by a route."""
            if number == others and self.router.refuses_others:
                detail = "No table takes a message of this kind"
                return refuse_all(schema, len(index), SCHEMA, "unrouted", detail).renumber(index)
            of_route = messages.take(index)
            decoded = checked_verdict(self.routes[number].decoder, decodes[number](of_route))
            return _in_struct(schema, number, steps[number](decoded, of_route)).renumber(index)

        def decode_by_records(messages: pa.RecordBatch) -> Iterator[Decoded]:
            """Lets each decoder pass on what is of another record. A null is of no record."""
            left = pa.array(np.flatnonzero(messages["value"].is_valid()))
            for number in range(others):
                decoded = decode_some(number, messages, left)
                left = decoded.dead_index.filter(pc.equal(decoded.dead_reason, "other_record"))
                yield decoded.without(left.to_numpy())
            nulls = np.flatnonzero(messages["value"].is_null())
            yield decode_some(others, messages, pa.array(np.union1d(left.to_numpy(), nulls)))

        def decode_by_rules(messages: pa.RecordBatch) -> Iterator[Decoded]:
            """Decodes the messages of each route."""
            ids = self.schema_ids(messages, pa.repeat(SCHEMA, messages.num_rows))
            numbers = self.router.rules_of(
                pa.RecordBatch.from_arrays([ids], ["schema_id"]), messages
            )
            for number in np.unique(numbers).tolist():
                yield decode_some(number, messages, pa.array(np.flatnonzero(numbers == number)))

        def decode_by_column(messages: pa.RecordBatch) -> Iterator[Decoded]:
            """Decodes all messages by the last decoder first; of several rows the last one counts.

            What has no rows has its verdict already.
            """
            decoded = decodes[others](messages)
            rows, index = decoded.rows, decoded.row_index
            numbers = np.full(messages.num_rows, -1, np.intp)
            numbers[index.to_numpy()] = self.router.rules_of(rows, messages)
            again_mask = (numbers >= 0) & ~np.array(is_shared)[numbers]
            yield replace(
                decoded.without(np.flatnonzero(again_mask)),
                rows=nothing(schema).rows,
                row_index=index.slice(0, 0),
            )
            for number in np.unique(numbers[numbers >= 0]).tolist():
                if is_shared[number]:
                    mask = pa.array(numbers[index.to_numpy()] == number)
                    own = replace(
                        nothing(rows.schema), rows=rows.filter(mask), row_index=index.filter(mask)
                    )
                    yield _in_struct(schema, number, steps[number](own, messages))
                else:
                    yield decode_some(number, messages, pa.array(np.flatnonzero(numbers == number)))

        decode_parts = {"record": decode_by_records, "column": decode_by_column}.get(
            self.router.routed_by, decode_by_rules
        )

        def decode(messages: pa.RecordBatch) -> Decoded:
            parts = list(decode_parts(messages))
            has_deletes = any(part.deletes is not None for part in parts)
            joined = together(schema, parts, schema.names if has_deletes else None)
            lookups = merge_parts(lookup for part in parts for lookup in part.lookups)
            return replace(joined, lookups=lookups)

        return decode


def _in_struct(schema: pa.Schema, number: int, decoded: Decoded) -> Decoded:
    """Returns the verdict on messages of a route with the columns of all routes."""

    def structs(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns, count = dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows
        fields = list(schema.field(number).type)
        own = pa.StructArray.from_arrays(
            [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in fields],
            fields=fields,
        )
        arrays = [
            own if other == number else pa.nulls(count, field.type)
            for other, field in enumerate(schema)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    deletes = decoded.deletes
    return replace(
        decoded,
        rows=structs(decoded.rows),
        deletes=None if deletes is None else replace(deletes, keys=structs(deletes.keys)),
    )
