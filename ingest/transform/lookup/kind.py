"""Settings of a `lookup` step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from windrow.ingest.errors import check_output
from windrow.ingest.lookups.kinds import SourceOfItsKind
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import Count, Default, Text, Values, refuse, sentence
from windrow.ingest.transform.kind import StepContext, StepSection

if TYPE_CHECKING:
    from windrow.ingest.ports.transform import Transform

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise sentence("must be a letter, then letters, digits, _ and -: at most 60", value)
    return value


def _order(value: str) -> str:
    column, _, order = value.partition(" ")
    if not column or order not in {"", "desc"}:
        raise sentence("must be a column, or a column and desc", value)
    return value


def _of_yaml(value: object) -> object:
    """Reads YAML's null as the word `null`."""
    return "null" if value is None else value


_PAIRS = Values("`{column: column}`")


class LookupStepSection(StepSection):
    """A lookup of columns in another table or in a service, by keys or vectors of the rows."""

    lookup: Annotated[Text, AfterValidator(_name)] = Field(
        description="The lookup's name in receipts, metrics and errors."
    )
    key: Annotated[
        Annotated[Mapping[Text, Text], Field(min_length=1)] | None, _PAIRS, Default("`nearest`")
    ] = Field(
        default=None,
        description=(
            "Columns of the rows, and the column of the source that each must be equal to. Several"
            " are one key together."
        ),
    )
    nearest: Annotated[
        Annotated[Mapping[Text, Text], Field(min_length=1, max_length=1)] | None,
        Values("`{column: column}`"),
        Default("`key`"),
    ] = Field(
        default=None,
        description=(
            "In the place of a key: the column of the rows with a vector, and the one of the"
            " table with the vectors that it is compared with, all of them."
        ),
    )
    top_k: Annotated[Count, Field(le=100), Values("a number from 1 to 100")] = Field(
        default=1, description="With `nearest`: how many of the nearest rows each row gets."
    )
    metric: Literal["cosine", "l2", "dot"] = Field(
        default="cosine",
        description=(
            "With `nearest`: what is near, by the angle of two vectors, their distance, or their"
            " product."
        ),
    )
    into: Annotated[Text | None, Default("the lookup's name")] = Field(
        default=None,
        description=(
            "With `nearest`: the new column, a list of structs of what is taken and `score`, the"
            " nearest first."
        ),
    )
    take: Annotated[Mapping[Text, Text], Field(min_length=1), _PAIRS] = Field(
        description=(
            "Columns of the source, and the names that they get in the rows; with `nearest`, in"
            " the structs."
        )
    )
    from_: SourceOfItsKind = Field(alias="from", description="What is looked up in.")
    on_miss: Annotated[Literal["null", "dead", "fail"], BeforeValidator(_of_yaml)] = Field(
        default="null",
        description=(
            "What becomes of a row without an answer: its new columns are null, its message is a"
            " dead letter, or the window is refused."
        ),
    )
    first_by: Annotated[
        Annotated[Text, AfterValidator(_order)] | None,
        Values("a column of the source, with ` desc` behind it for the greatest first"),
        Default("the window is refused"),
    ] = Field(
        default=None,
        description="Which of several rows of one key is taken: the first one by this column.",
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields options that don't fit the kind of lookup, by key or by vector."""
        key, nearest, source = (written.get(name) for name in ("key", "nearest", "from"))
        if (key is None) == (nearest is None):
            yield ("key",), "must be there, or nearest in its place"
        source_columns = list(key.values()) if isinstance(key, Mapping) else []
        if any(source_columns.count(column) > 1 for column in source_columns):
            yield ("key",), "names a column of the source twice"
        for option in ("top_k", "metric", "into") if nearest is None else ("first_by",):
            if written.get(option) is not None:
                yield (option,), f"doesn't go with {'key' if nearest is None else 'nearest'}"
        if nearest is not None and isinstance(source, Mapping) and "table" not in source:
            yield ("from",), "must be a table: nothing else can be searched by vectors"

    @model_validator(mode="after")
    def _of_its_source(self) -> Self:
        """Refuses a key whose columns the source can't look up by."""
        asked_by = self.from_.asked_by
        if asked_by and sorted((self.key or {}).values()) != asked_by:
            message = (
                f"names other columns of the source than from, which has {', '.join(asked_by)}"
            )
            refuse([(("key",), message)])
        return self

    @property
    def is_repeatable(self) -> bool:
        return self.from_.is_repeatable

    @property
    def makes_dead(self) -> str | None:
        return "on_miss" if self.on_miss == "dead" else None

    def transform(self, context: StepContext) -> Transform:
        # imported here: these modules load Arrow and polars
        from windrow.ingest.transform.lookup.nearest import Nearest
        from windrow.ingest.transform.lookup.step import Lookup

        column, _, order = (self.first_by or "").partition(" ")
        arguments = (
            self.lookup,
            tuple((self.key or self.nearest or {}).items()),
            tuple(self.take.items()),
            check_output(self.from_, self.from_.source(context.folder), "open"),
            self.on_miss,
            (column, order == "desc") if column else None,
            context.setting_path,
        )
        if self.nearest is None:
            return Lookup(*arguments)
        return Nearest(
            *arguments, into=self.into or self.lookup, top_k=self.top_k, metric=self.metric
        )
