"""Lookups as a transform: the keys of a batch are asked for once, and joined to its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, cast

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.lookup import LookedUp, merged
from windrow.ingest.ports.decoder import RULES, Decoded, Refusal
from windrow.ingest.ports.lookup import MOST_BYTES, Ask, LookupSource
from windrow.ingest.ports.transform import Apply, Transform
from windrow.ingest.schema.checksum import checksum, text
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.transform.unavailable import Asked, answerable, marked, unavailable_rows

_PINNED = (
    " The window keeps to the version that it is pinned to; with --fresh-lookups (in Dagster"
    " fresh_lookups: true) it is pinned anew, to the newest one."
)
_AT = "\x01"
"""The number of a row: no column of a table has this name."""
_WHY = "\x02"
"""Why the source refuses a key: no column of a table has this name."""


@dataclass(frozen=True)
class Lookup:
    """Columns of a source for each row, by a key.

    `key`: columns of the rows with those of the source; `take`: columns of the source with
    their names in the rows; `first_by`: a column of the source, and whether its greatest
    value comes first. `pin`: the version of the source, and `types` the columns that it is
    asked for; None for those of the moment.
    """

    name: str
    key: tuple[tuple[str, str], ...]
    take: tuple[tuple[str, str], ...]
    source: LookupSource
    on_miss: Literal["null", "dead", "fail"] = "null"
    first_by: tuple[str, bool] | None = None
    setting: str = "lookup"
    pin: str | None = None
    types: pa.Schema | None = None

    def columns(self, before: Columns) -> Columns:
        """The columns before, and those that are looked up, which may be null.

        Raises:
            SpecError: a column isn't there, two have one name, or keys can't be compared.
            UnreachableError: the source doesn't answer.
        """
        source, rows = self._source_schema, before.arrow_schema
        wrong = self._wrong(rows, source)
        if wrong:
            what = f"{self.setting} can't be used: " + "; ".join(wrong)
            raise SpecError(what, "spec", f"{self.source.identity} is asked. Nothing was read.")
        added = (Column(to, source.field(of).type, nullable=True) for of, to in self.take)
        return replace(before, columns=(*before.columns, *added))

    def _wrong(self, rows: pa.Schema, source: pa.Schema) -> list[str]:
        has = ", ".join(source.names)
        wrong = [
            f"{self.name} has no column {of} of a type that a table takes; it has {has}"
            for of in self._asked
            if of not in source.names
        ]
        for column, of in self.key:
            if column not in rows.names:
                wrong.append(f"the rows have no column {column}; they have {', '.join(rows.names)}")
            elif of in source.names:
                mine, other = rows.field(column).type, source.field(of).type
                if not _comparable(mine, other):
                    wrong.append(f"{column} is {mine}, and {of} is {other}: no keys of one kind")
        names = [*rows.names, *(to for _, to in self.take)]
        twice = sorted({name for name in names if names.count(name) > 1})
        return wrong + [f"the rows would have two columns {name}" for name in twice]

    @property
    def reads(self) -> dict[str, frozenset[str]]:
        """The columns of the rows that each column that is looked up depends on."""
        return {to: frozenset(column for column, _ in self.key) for _, to in self.take}

    def sources(self) -> Mapping[str, LookupSource]:
        return {self.name: self.source}

    def pinned(self, versions: Mapping[str, str]) -> Transform:
        return replace(self, pin=versions.get(self.name), types=self.wanted())

    def wanted(self) -> pa.Schema:
        """The columns that the source is asked for.

        Raises:
            SpecError, UnreachableError: as `columns`.
        """
        source = self._source_schema
        lost = [of for of in self._asked if of not in source.names]
        if lost:
            what = f"{self.name} has no column {', '.join(lost)} any more"
            raise SpecError(what, "setup", f"{self.setting} asks for it. Nothing was read.")
        return pa.schema([source.field(of) for of in self._asked])

    @cached_property
    def _source_schema(self) -> pa.Schema:
        return self.source.schema()

    @property
    def _asked(self) -> list[str]:
        """The source's columns that are keys, taken or ordered by."""
        by = [] if self.first_by is None else [self.first_by[0]]
        return list(dict.fromkeys([*(of for _, of in self.key), *(of for of, _ in self.take), *by]))

    def open(self) -> Apply:
        return _Step(self)


class _Step:
    """A lookup for the rows of one split, in a worker.

    Each distinct key of the split is asked for once. `_known` has them, with the row of
    `_rows` that answers each: null for a miss, and for a key that the source refuses, with
    the reason.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._columns = [column for column, _ in lookup.key]
        self._keys = [of for _, of in lookup.key]
        self._ask: Ask | None = None
        self._known: pl.DataFrame
        self._rows: pa.Table

    def __call__(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        lookup = self._lookup
        asked = Asked(lookup.name, frozenset(self._columns), may_keep=True)
        decoded = answerable(decoded, [asked], "lookup", lookup.setting)
        ask = self._ask or self._begin()
        keys = self._frame([decoded.rows[column] for column in self._columns])
        new = keys.drop_nulls().unique().join(self._known, self._keys, how="anti")
        try:
            counted = self._added(ask, new.sort(self._keys))
        except _SeveralError as several:
            rows = keys.with_row_index(_AT).join(several.keys, self._keys, how="semi")
            what = f"{lookup.name} has several rows of one key"
            do = "Say which of them counts by first_by, or look up a key that has one row."
            raise self._refused(what, do, decoded, messages, rows[_AT].min()) from None
        known = keys.join(self._known, self._keys, how="left", maintain_order="left")
        at, refused = known[_AT].to_arrow(), known[_WHY].is_not_null().to_numpy()
        missed = np.asarray(at.is_null()) & ~unavailable_rows(decoded, self._columns) & ~refused
        numbers = {"hits": len(at) - at.null_count, "misses": int(missed.sum())}
        counted = msgspec.structs.replace(counted, **numbers)
        made = decoded.with_rows(self._with_answers(decoded.rows, at), np.arange(len(at)))
        made = replace(made, lookups=merged([*made.lookups, counted]))
        if missed.any() and lookup.on_miss == "fail":
            what = f"{lookup.name} has no row for the key of {numbers['misses']} of {len(at)} rows"
            do = "Add what is missing."
            raise self._refused(what, do, decoded, messages, np.flatnonzero(missed)[0])
        before = {name: frozenset({name}) for name in decoded.rows.schema.names}
        made = marked(made, before | lookup.reads)
        refusals = [
            Refusal(
                np.flatnonzero(known[_WHY] == why),
                f"lookup:{lookup.name}:refused",
                f"{lookup.name} refuses its key: {why} - in {lookup.setting}",
            )
            for why in known[_WHY].drop_nulls().unique().sort()
        ]
        if lookup.on_miss == "dead":
            detail = f"No row of {lookup.name} has its key - in {lookup.setting}"
            reason = f"lookup:{lookup.name}:no_match"
            refusals.append(Refusal(np.flatnonzero(missed), reason, detail))
        return made.refused(RULES, refusals)

    def _begin(self) -> Ask:
        lookup = self._lookup
        types = lookup.types or lookup.wanted()
        version = lookup.source.version() if lookup.pin is None else lookup.pin
        self._rows = types.empty_table()
        none = self._frame([pa.array([], types.field(of).type) for of in self._keys])
        self._known = none.with_columns(
            pl.lit(None, pl.Int64).alias(_AT), pl.lit(None, pl.String).alias(_WHY)
        )
        self._ask = lookup.source.open(version, types)
        return self._ask

    def _frame(self, keys: Sequence[pa.Array]) -> pl.DataFrame:
        """Keys under the names of the source's columns."""
        arrays = [a.cast(f.type) for a, f in zip(keys, self._key_types(), strict=True)]
        return cast("pl.DataFrame", pl.from_arrow(pa.table(arrays, self._keys)))

    def _key_types(self) -> pa.Schema:
        """The types in which keys are compared: the source's, but for whole numbers.

        The widest one has room for those of both sides.
        """
        fields = [self._rows.schema.field(of) for of in self._keys]
        return pa.schema([f.with_type(_widest(f.type)) for f in fields])

    def _added(self, ask: Ask, new: pl.DataFrame) -> LookedUp:
        """Asks for keys that are new, and adds the answers to those that are known.

        Raises:
            _SeveralError: keys have several rows.
        """
        if not new.height:
            return LookedUp(self._lookup.name, 0, 0, 0, 0, None, None, text(0))
        types, began = self._rows.schema, datetime.now(UTC)
        keys = new.to_arrow().cast(self._key_types())
        try:
            answers = ask(keys)
        except RefusedError as error:
            error.do += _PINNED if self._lookup.source.repeats else ""
            raise
        ended, rows = datetime.now(UTC), answers.rows.select(types.names)
        found = self._frame([rows[of] for of in self._keys])
        if self._lookup.first_by is not None:
            column, descending = self._lookup.first_by
            order = cast("pl.DataFrame", pl.from_arrow(rows)).with_row_index(_AT)
            order = order.sort(
                [column, *types.names],
                descending=[descending, *(False for _ in types.names)],
                nulls_last=True,
            )
            rows = rows.take(order[_AT].to_arrow())
            found = self._frame([rows[of] for of in self._keys])
        found = found.with_columns((pl.int_range(pl.len()) + self._rows.num_rows).alias(_AT))
        if self._lookup.first_by is not None:
            found = found.unique(self._keys, keep="first")
        known = new.join(found, self._keys, how="left", maintain_order="left")
        if known.height > new.height:
            raise _SeveralError(known.filter(known.select(self._keys).is_duplicated()))
        known = self._with_refused(known, answers.refused)
        self._known = pl.concat([self._known, known])
        self._rows = pa.concat_tables([self._rows, rows]).combine_chunks()
        if self._rows.nbytes > MOST_BYTES:
            what = f"The answers of {self._lookup.name} take more than {MOST_BYTES >> 20} MiB"
            do = "Take fewer columns, or make splits smaller (source.split_records)."
            raise SpecError(what, "validate", do)
        at = known[_AT].to_arrow()
        taken = {to: _one(self._rows[of].take(at)) for of, to in self._lookup.take}
        asked = {f"key:{of}": _one(keys[of]) for of in self._keys}
        answered = checksum(pa.RecordBatch.from_pydict(asked | taken))
        return LookedUp(
            self._lookup.name, new.height, 0, 0, answers.requests, began, ended, text(answered)
        )

    def _with_refused(self, known: pl.DataFrame, refused: Mapping[str, pa.Table]) -> pl.DataFrame:
        """The keys with why the source refuses them; such a key has no row."""
        none = self._known.select(*self._keys, _WHY).clear()
        parts = (
            self._frame([keys[of] for of in self._keys]).with_columns(pl.lit(why).alias(_WHY))
            for why, keys in sorted(refused.items())
        )
        whys = pl.concat([none, *parts]).unique(self._keys, keep="first", maintain_order=True)
        known = known.join(whys, self._keys, how="left", maintain_order="left")
        return known.with_columns(pl.when(pl.col(_WHY).is_null()).then(pl.col(_AT)))

    def _with_answers(self, rows: pa.RecordBatch, at: pa.Array) -> pa.RecordBatch:
        take = self._lookup.take
        try:
            arrays = [*rows.columns, *(_one(self._rows[of].take(at)) for of, _ in take)]
        except pa.ArrowInvalid:  # 2 GiB of text
            what = f"What {self._lookup.name} gives is too large for a batch of {len(at)} rows"
            do = "Decode fewer messages at once (source.tuning.batch_messages)."
            raise SpecError(what, "validate", do) from None
        types = self._rows.schema
        fields = [*rows.schema, *(pa.field(to, types.field(of).type) for of, to in take)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _refused(
        self, what: str, do: str, decoded: Decoded, messages: pa.RecordBatch, row: Any
    ) -> RefusedError:
        """The error about a row, with its message's position, and the ways out."""
        message = messages.slice(decoded.row_index[int(row)].as_py(), 1).to_pylist()[0]
        do = f"Nothing was committed. {do}" + (_PINNED if self._lookup.source.repeats else "")
        return RefusedError(
            f"{what}: {self._lookup.setting}, {self._lookup.source.identity}",
            "validate",
            do,
            message["topic"],
            message["partition"],
            message["offset"],
        )


class _SeveralError(Exception):
    """Keys with several rows."""

    def __init__(self, keys: pl.DataFrame) -> None:
        self.keys = keys


def _one(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _widest(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else kind


def _comparable(mine: pa.DataType, other: pa.DataType) -> bool:
    """Returns whether keys of two types can be equal without any being changed."""
    whole = pa.types.is_integer
    return not (pa.types.is_floating(mine) or pa.types.is_nested(mine)) and (
        mine == other or (whole(mine) and whole(other))
    )
