"""Lookups as a transform: the keys of a batch are asked for once, and joined to its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt
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
        added = (Column(to, kind, nullable=True) for to, kind in self.added(source).items())
        return replace(before, columns=(*before.columns, *added))

    @property
    def gives(self) -> list[str]:
        """The names of the columns that rows get."""
        return [to for _, to in self.take]

    def added(self, source: pa.Schema) -> dict[str, pa.DataType]:
        """These columns' types, of a source with such columns."""
        return {to: source.field(of).type for of, to in self.take}

    def comparable(self, mine: pa.DataType, other: pa.DataType) -> bool:
        """Returns whether keys of two types can be equal without any being changed."""
        whole = pa.types.is_integer
        return not (pa.types.is_floating(mine) or pa.types.is_nested(mine)) and (
            mine == other or (whole(mine) and whole(other))
        )

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
                if not self.comparable(mine, other):
                    wrong.append(f"{column} is {mine}, and {of} is {other}: can't be compared")
        names = [*rows.names, *self.gives]
        twice = sorted({name for name in names if names.count(name) > 1})
        return wrong + [f"the rows would have two columns {name}" for name in twice]

    @property
    def reads(self) -> dict[str, frozenset[str]]:
        """The columns of the rows that each column that is looked up depends on."""
        return {name: frozenset(column for column, _ in self.key) for name in self.gives}

    def sources(self) -> Mapping[str, LookupSource]:
        return {self.name: self.source}

    def pinned(self, versions: Mapping[str, str]) -> Transform:
        return replace(self, pin=versions.get(self.name), types=self.wanted())

    def version(self) -> str:
        """The version of the source that is asked."""
        return self.source.version() if self.pin is None else self.pin

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
        return _ByKey(self)


class LookupStep:
    """A lookup for the rows of one split, in a worker."""

    by = "key"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._columns = [column for column, _ in lookup.key]

    def __call__(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        lookup = self._lookup
        asked = Asked(lookup.name, frozenset(self._columns), may_keep=True)
        decoded = answerable(decoded, [asked], "lookup", lookup.setting)
        try:
            return self._applied(decoded, messages)
        except RefusedError as error:
            error.do += _PINNED if lookup.source.repeats else ""
            raise

    def _applied(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        lookup, rows = self._lookup, decoded.rows
        answers, without, counted, refusals = self._answers(decoded, messages)
        missed = without & ~unavailable_rows(decoded, self._columns)
        counted = msgspec.structs.replace(counted, misses=int(missed.sum()))
        fields = (pa.field(name, a.type) for name, a in zip(lookup.gives, answers, strict=True))
        joined = pa.RecordBatch.from_arrays(
            [*rows.columns, *answers], schema=pa.schema([*rows.schema, *fields])
        )
        made = decoded.with_rows(joined, np.arange(len(missed)))
        made = replace(made, lookups=merged([*made.lookups, counted]))
        if missed.any() and lookup.on_miss == "fail":
            what = f"no row for the {self.by} of {counted.misses} of {len(missed)} rows"
            raise self._refused(what, "Add what is missing.", decoded, messages, missed.argmax())
        before = {name: frozenset({name}) for name in rows.schema.names}
        made = marked(made, before | lookup.reads)
        if lookup.on_miss == "dead":
            detail = f"No row of {lookup.name} has its {self.by} - in {lookup.setting}"
            reason = f"lookup:{lookup.name}:no_match"
            refusals = [*refusals, Refusal(np.flatnonzero(missed), reason, detail)]
        return made.refused(RULES, refusals)

    def _answers(
        self, decoded: Decoded, messages: pa.RecordBatch, /
    ) -> tuple[list[pa.Array], npt.NDArray[np.bool_], LookedUp, list[Refusal]]:
        """Looks up for all rows.

        Returns the new columns, which rows have no answer, what was asked (`misses` is counted
        later), and which rows are refused.
        """
        raise NotImplementedError

    def _refused(
        self, what: str, do: str, decoded: Decoded, messages: pa.RecordBatch, row: Any
    ) -> RefusedError:
        """The error about a row, with its message's position."""
        message = messages.slice(decoded.row_index[int(row)].as_py(), 1).to_pylist()[0]
        return RefusedError(
            f"{self._lookup.name} has {what}: {self._lookup.setting},"
            f" {self._lookup.source.identity}",
            "validate",
            f"Nothing was committed. {do}",
            message["topic"],
            message["partition"],
            message["offset"],
        )

    def _taken(self, values: pa.ChunkedArray, at: pa.Array) -> pa.Array:
        try:
            return _one(values.take(at))
        except pa.ArrowInvalid:  # 2 GiB of text
            raise self._too_large(len(at)) from None

    def _too_large(self, rows: int) -> SpecError:
        """The error about answers that don't fit beside a batch."""
        what = f"What {self._lookup.name} gives is too large for a batch of {rows} rows"
        do = "Decode fewer messages at once (source.tuning.batch_messages)."
        return SpecError(what, "validate", do)


class _ByKey(LookupStep):
    """Asks for each distinct key of the split once.

    `_known` has them, with the row of `_rows` that answers each: null for a miss, and for a key
    that the source refuses, with the reason.
    """

    def __init__(self, lookup: Lookup) -> None:
        super().__init__(lookup)
        self._keys = [of for _, of in lookup.key]
        self._ask: Ask | None = None
        self._known: pl.DataFrame
        self._rows: pa.Table

    def _answers(
        self, decoded: Decoded, messages: pa.RecordBatch
    ) -> tuple[list[pa.Array], npt.NDArray[np.bool_], LookedUp, list[Refusal]]:
        lookup, ask = self._lookup, self._ask or self._begin()
        keys = self._frame([decoded.rows[column] for column in self._columns])
        new = keys.drop_nulls().unique().join(self._known, self._keys, how="anti")
        try:
            counted = self._added(ask, new.sort(self._keys))
        except _SeveralError as several:
            rows = keys.with_row_index(_AT).join(several.keys, self._keys, how="semi")
            do = "Say which of them counts by first_by, or look up a key that has one row."
            row = rows[_AT].min()
            raise self._refused("several rows of one key", do, decoded, messages, row) from None
        known = keys.join(self._known, self._keys, how="left", maintain_order="left")
        at, why = known[_AT].to_arrow(), known[_WHY]
        answers = [self._taken(self._rows[of], at) for of, _ in lookup.take]
        counted = msgspec.structs.replace(counted, hits=len(at) - at.null_count)
        refusals = [
            Refusal(
                np.flatnonzero(why == one),
                f"lookup:{lookup.name}:refused",
                f"{lookup.name} refuses its key: {one} - in {lookup.setting}",
            )
            for one in why.drop_nulls().unique().sort()
        ]
        return answers, np.asarray(at.is_null()) & why.is_null().to_numpy(), counted, refusals

    def _begin(self) -> Ask:
        lookup = self._lookup
        types = lookup.types or lookup.wanted()
        self._rows = types.empty_table()
        none = self._frame([pa.array([], types.field(of).type) for of in self._keys])
        self._known = none.with_columns(
            pl.lit(None, pl.Int64).alias(_AT), pl.lit(None, pl.String).alias(_WHY)
        )
        self._ask = lookup.source.open(lookup.version(), types)
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
        answers = ask(keys)
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


class _SeveralError(Exception):
    """Keys with several rows."""

    def __init__(self, keys: pl.DataFrame) -> None:
        self.keys = keys


def _one(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _widest(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else kind
