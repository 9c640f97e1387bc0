"""Columns of a table, read from a pandera.polars DataFrameModel.

The model is the only source for the decoder, the Arrow schema, the table, and Dagster's table
schema.

The model may give supported types, `nullable`, `alias`, checks, descriptions, and this metadata
of a field:

    {"epoch": "s" | "ms" | "us" | "ns"}
                    a Datetime column arrives as a number in that unit, not as text
    {"zone": "Europe/Berlin"}
                    a Datetime column arrives as text, in that zone if it has no offset
    {"map": True}   a List(Struct({"key": String, "value": T})) column arrives as a
                    JSON object and becomes an Arrow map, because pandera doesn't support
                    polars' Map type
    {"path": "data.object.id"}
                    the field's place in the message: names from the outermost object on,
                    also as a list, for names that have dots
    {"codecs": ["base64", "gzip", "json"]}
                    the field is a text, or bytes, in these codecs, the outermost first; only
                    behind `json` may the column be other than String or Binary
    {"aliases": ["amt"]}
                    other names of the field, in JSON or in a writer's schema
    {"default": "EUR"}
                    the value if the writer's schema has no such field

An option of pandera is refused if it would change data silently, or would only hold within a
batch.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, get_args

import polars as pl
import pyarrow as pa

from windrow.ingest.errors import SpecError, foreign_exceptions
from windrow.ingest.model.instants import is_zone
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.dtypes import (
    EPOCH_UNITS,
    TIMESTAMP,
    UnsupportedTypeError,
    arrow_type,
    map_type,
    name_problems,
)
from windrow.ingest.schema.message_fields import Codec, FieldPath
from windrow.ingest.schema.user_code import import_pandera

_EPOCH, _ZONE = b"epoch", b"zone"

REST = "_rest"
"""The column with what the schema doesn't name, where a decoder keeps it."""

Finer = Literal["truncate", "dead"]
"""Treatment of timestamps finer than a microsecond.

- `truncate`: they are cut to the earlier microsecond, and their messages are counted.
- `dead`: their messages are dead letters.
"""


@dataclass(frozen=True)
class Column:
    """Column of a table.

    Attributes:
        name: the name.
        type: the Arrow type.
        nullable: whether a value may be null.
        epoch: the unit of a timestamp that is a number.
        description: the description in the model.
        constraints: the checks in words.
        zone: the zone of a timestamp that is a text without an offset.
        aliases: other names that messages or a writer's schema may have for the column.
        default: the value if a writer's schema has none of these names.
        paths: the places in the message of which the first with a value counts. Empty for
            the field of the column's name, at the top.
        codecs: the codecs that the field is in, the outermost first.
    """

    name: str
    type: pa.DataType
    nullable: bool
    epoch: str | None = None
    description: str | None = None
    constraints: tuple[str, ...] = ()
    zone: str | None = None
    aliases: tuple[str, ...] = ()
    default: pa.Scalar | None = None
    paths: tuple[FieldPath, ...] = ()
    codecs: tuple[Codec, ...] = ()


@dataclass(frozen=True)
class AsWritten:
    """Columns for messages with a writer's schema.

    Attributes:
        columns: the columns with a field in the schema, with the field's name; and the
            columns without a default.
        defaults: the values of all other columns, by column.
    """

    columns: Columns
    defaults: dict[str, pa.Scalar]


def epoch_of(field: pa.Field) -> str | None:
    """Returns `Column.epoch` of a struct's field.

    A model can't give it to a struct's field. `field_of` can, when it makes a field of a
    column.
    """
    return _metadata_text(field, _EPOCH)


def zone_of(field: pa.Field) -> str | None:
    """Returns `Column.zone` of a struct's field; see `epoch_of`."""
    return _metadata_text(field, _ZONE)


def _metadata_text(field: pa.Field, name: bytes) -> str | None:
    stated = (field.metadata or {}).get(name)
    return None if stated is None else str(stated.decode())


def field_of(column: Column) -> pa.Field:
    """Returns a nullable field of a struct with a column's name, type, epoch and zone."""
    metadata = {
        name: text.encode()
        for name, text in ((_EPOCH, column.epoch), (_ZONE, column.zone))
        if text is not None
    }
    return pa.field(column.name, column.type, metadata=metadata or None)


@dataclass(frozen=True)
class Columns:
    """Columns in their order. Immutable and picklable.

    Attributes:
        columns: the columns.
        constraints: the checks of whole rows, in words.
        finer: the decoder's treatment of timestamps finer than a microsecond.
        row_path: the path of the row in a message. Fields of the row without a column are
            reported as ignored. None if the columns hold no row.
    """

    columns: tuple[Column, ...]
    constraints: tuple[str, ...] = ()  # of whole rows
    finer: Finer = "truncate"
    row_path: tuple[str, ...] | None = ()

    @classmethod
    def of(cls, model: type[Any]) -> Columns:
        """Returns the columns of a pandera.polars DataFrameModel.

        Raises:
            SpecError: names everything that is wrong with the model.
        """
        try:
            written = _annotations_of(model)
            schema = model.to_schema()
        # If pandera, polars or the model's own code raises, the model has to be fixed.
        except foreign_exceptions() as error:
            raise _refusal(
                model, [f"pandera can't read it: {type(error).__name__}: {error}"]
            ) from error
        all_problems = [
            *_hidden_fields(model),
            *_schema_problems(schema),
            *name_problems(list(schema.columns)),
            *([] if schema.columns else ["it has no columns"]),
        ]
        columns = []
        for name, column in schema.columns.items():
            kind, problems = _arrow_type_of(column, written.get(name))
            all_problems += [
                f"{name}: {problem}" for problem in (*_column_problems(column), *problems)
            ]
            if kind is not None:
                metadata, checks = column.metadata or {}, tuple(_text(c) for c in column.checks)
                epoch, zone, aliases = (
                    metadata.get("epoch"),
                    metadata.get("zone"),
                    metadata.get("aliases", ()),
                )
                default, problems = _default(metadata.get("default"), kind)
                all_problems += [f"{name}: {problem}" for problem in problems]
                columns.append(
                    Column(
                        name,
                        kind,
                        column.nullable,
                        epoch,
                        column.description,
                        checks,
                        zone,
                        tuple(aliases),
                        default,
                        (tuple(_names_of(metadata["path"])),) if "path" in metadata else (),
                        tuple(metadata.get("codecs", ())),
                    )
                )
        all_problems += _alias_problems(columns)
        if all_problems:
            raise _refusal(model, all_problems)
        return cls(tuple(columns), tuple(_text(c) for c in schema.checks))

    def with_rest(self) -> Columns:
        """Returns these columns, and `REST` after them.

        Raises:
            SpecError: one of them has its name.
        """
        if any(column.name.casefold() == REST for column in self.columns):
            raise SpecError(
                f"decode.unknown: keep adds the column {REST}, which the schema has already",
                "spec",
                "Give the field of the schema another alias; nothing was read.",
            )
        words = "the fields of the message that no column is for, as a JSON object"
        return replace(self, columns=(*self.columns, Column(REST, pa.string(), True, None, words)))

    def split_rest(self, *, keeps_unknown: bool) -> tuple[int | None, Columns]:
        """Returns the index of the column `REST`, and the other columns.

        If rows don't keep what no column is for, the index is None, and `REST` is a column like
        any other.
        """
        names = [column.name for column in self.columns]
        if not keeps_unknown or REST not in names:
            return None, self
        index = names.index(REST)
        return index, replace(self, columns=self.columns[:index] + self.columns[index + 1 :])

    def as_written(self, fields: Collection[str]) -> AsWritten:
        """Returns the columns for messages whose writer's schema has these fields.

        A column is matched to a field by the rules of Avro's schema resolution.
        """
        written_names = [
            next((name for name in (c.name, *c.aliases) if name in fields), c.name)
            for c in self.columns
        ]
        present_columns = tuple(
            replace(c, name=n)
            for c, n in zip(self.columns, written_names, strict=True)
            if n in fields or c.default is None
        )
        if not present_columns:
            return AsWritten(self, {})
        defaults = {
            c.name: c.default
            for c, n in zip(self.columns, written_names, strict=True)
            if n not in fields and c.default is not None
        }
        return AsWritten(replace(self, columns=present_columns), defaults)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Arrow schema of rows, with nullability."""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])

    def described(self) -> tuple[tuple[str, str], ...]:
        """Returns (name, type) of each column for receipts: `("amount", "double not null")`."""
        return tuple(
            (c.name, str(c.type) if c.nullable else f"{c.type} not null") for c in self.columns
        )


def _refusal(model: type[Any], problems: list[str]) -> SpecError:
    return SpecError(
        f"The schema {getattr(model, '__name__', model)} can't be used: " + "; ".join(problems),
        "spec",
        "Fix the schema; nothing was read.",
    )


def _annotations_of(model: type[Any]) -> dict[str, object]:
    """Returns the model's annotation of each column.

    It is needed because pandera changes a Decimal without digits to one of 28 digits.
    """
    return {
        str(field.name): annotation.raw_annotation
        for annotation, field in model.__fields__.values()
    }


def _hidden_fields(model: type[Any]) -> Iterator[str]:
    """Yields a problem, with advice, for each field that pandera ignores.

    pandera ignores a name with a leading underscore, and the name `Config`.
    """
    field_class = type(import_pandera().Field())
    for base in model.__mro__:
        if base.__module__.partition(".")[0] in {"pandera", "builtins"}:
            continue
        mangled = f"_{base.__name__.lstrip('_')}__"
        fields = {name for name, value in vars(base).items() if isinstance(value, field_class)}
        fields |= {
            name
            for name, kind in inspect.get_annotations(base).items()
            if "ClassVar" not in str(kind)
        }
        for name in sorted(fields):
            if name.startswith("_") or name == "Config":
                # The name in the class, before Python mangled it.
                written = name[len(mangled) - 2 :] if name.startswith(mangled) else name
                yield (
                    f"{written}: pandera leaves out a field that is called so: call it otherwise,"
                    f' with pa.Field(alias="{written}")'
                ) + (
                    "; that is a metadata column's name, unless the spec renames it under metadata:"
                    " do so, or take another alias"
                    if written.casefold() in DEFAULT.values()
                    else ""
                )


def _arrow_type_of(column: Any, written: object) -> tuple[pa.DataType | None, list[str]]:
    """Returns the Arrow type of a pandera column, and the problems of its type and metadata."""
    if column.dtype is None:
        return None, ["it has no type"]
    try:
        kind = arrow_type(
            pl.Decimal
            if isinstance(written, type) and written in {pl.Decimal, Decimal}
            else column.dtype.type
        )
    except UnsupportedTypeError as error:
        return None, [str(error)]
    metadata = column.metadata or {}
    problems = []
    if "epoch" in metadata:
        if kind != TIMESTAMP:
            problems.append("metadata epoch is for Datetime('us', 'UTC') columns")
        if metadata["epoch"] not in EPOCH_UNITS:
            problems.append(f"metadata epoch must be one of {', '.join(EPOCH_UNITS)}")
    if "zone" in metadata:
        if kind != TIMESTAMP or "epoch" in metadata:
            problems.append(
                "metadata zone is for Datetime('us', 'UTC') columns without metadata epoch"
            )
        if not is_zone(metadata["zone"]):
            problems.append("metadata zone must be the name of a time zone, like Europe/Berlin")
    place_problems = [*_place_problems(metadata, kind)]
    if place_problems:
        return None, [*problems, *place_problems]
    if metadata.get("map", False):
        entries = map_type(kind)
        if entries is None:
            problems.append(
                "metadata map is for List(Struct({'key': String, 'value': ...})) columns"
            )
        return entries, problems
    return kind, problems


def _place_problems(metadata: dict[str, Any], kind: pa.DataType) -> Iterator[str]:
    """Finds problems of the metadata that say where a field is in a message, and in which form."""
    if not _are_names(metadata.get("aliases", ())):
        yield "metadata aliases must be a list of names"
    path = _names_of(metadata.get("path", "."))
    if "path" in metadata and not (path and _are_names(path)):
        yield "metadata path must be names with dots between, or a list of them"
    codecs = metadata.get("codecs", ())
    if not isinstance(codecs, list | tuple) or not all(
        codec in get_args(Codec) for codec in codecs
    ):
        yield f"metadata codecs must be of {', '.join(get_args(Codec))}"
    elif "json" in codecs[:-1]:
        yield "metadata codecs has json before another codec: it is the last one"
    elif codecs and codecs[-1] != "json" and kind not in {pa.string(), pa.binary()}:
        yield "metadata codecs without json are for String and Binary columns"


def _names_of(path: Any) -> Any:
    return path.split(".") if isinstance(path, str) else path


def _are_names(names: object) -> bool:
    return isinstance(names, list | tuple) and all(isinstance(n, str) and n for n in names)


def _default(value: object, kind: pa.DataType) -> tuple[pa.Scalar | None, list[str]]:
    """Returns a default as a value of the column, and the problems of the default.

    None means that there is no default.
    """
    if pa.types.is_integer(kind) and isinstance(value, float):  # Arrow would cut off its fraction
        return None, [f"metadata default is no value of {kind}: it is a float"]
    try:
        return (None if value is None else pa.scalar(value, kind)), []
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return None, [f"metadata default is no value of {kind}: {error}"]


def _alias_problems(columns: list[Column]) -> Iterator[str]:
    names = Counter(name for column in columns for name in {column.name, *column.aliases})
    for column in columns:
        for alias in column.aliases:
            if alias == column.name or names[alias] > 1:
                yield (
                    f"{column.name}: metadata aliases names {alias}, which is a column's name or"
                    " alias already"
                )


def _problems(part: Any) -> Iterator[str]:
    """Finds options that neither a model nor a column may have."""
    if part.unique:
        yield "unique holds per batch only, not for the table: check it after the table"
    if part.coerce:
        yield "coerce changes data silently: state the type that arrives"
    if part.parsers:
        yield (
            "parsers change data before it is checked, and pandera's polars backend doesn't run"
            " them: use a transform"
        )
    if part.drop_invalid_rows:
        yield "drop_invalid_rows hides rows: refused rows become dead letters"
    for check in part.checks:
        if check.raise_warning:
            yield (
                f"check {_text(check)}: raise_warning would be lost on an executor: let it refuse"
                " the row, or take it out"
            )


def _schema_problems(schema: Any) -> Iterator[str]:
    yield from _problems(schema)
    if schema.dtype is not None:
        yield "a type for all columns at once is not supported: give each field its own"
    if schema.add_missing_columns:
        yield "add_missing_columns invents values: make the column nullable"


def _column_problems(column: Any) -> Iterator[str]:
    yield from _problems(column)
    if column.regex:
        yield "a regex names no column: list the columns"
    if not column.required:
        yield "every column is in every row: not Optional, but Field(nullable=True)"
    if column.default is not None:
        yield (
            "a default invents values: make the column nullable; of a field that older schemas of a"
            " writer lack, say metadata default"
        )


def _text(check: Any) -> str:
    """Returns a check in words: `in_range(1, 100)`, or the name of a user's own check."""
    return str(check.error or check.name or "check")
