"""Settings of a `lookup` step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from windrow.ingest.lookups.kinds import SourceOfItsKind
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import LeftOut, Text, Values, sentence
from windrow.ingest.transform.kind import StepPlace, StepSection

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
    """Takes YAML's null as the word."""
    return "null" if value is None else value


_PAIRS = Values("`{column: column}`")


class LookupStepSection(StepSection):
    """Columns of another table or of a service, by keys that the rows have."""

    lookup: Annotated[Text, AfterValidator(_name)] = Field(
        description="The lookup's name in receipts, metrics and errors."
    )
    key: Annotated[Mapping[Text, Text], Field(min_length=1), _PAIRS] = Field(
        description=(
            "Columns of the rows, and the column of the source that each must be equal to. Several"
            " are one key together."
        )
    )
    take: Annotated[Mapping[Text, Text], Field(min_length=1), _PAIRS] = Field(
        description="Columns of the source, and the names that they get in the rows."
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
        LeftOut("the window is refused"),
    ] = Field(
        default=None,
        description="Which of several rows of one key is taken: the first one by this column.",
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds a column of the source that two columns of the rows must be equal to."""
        key = written.get("key")
        of = list(key.values()) if isinstance(key, Mapping) else []
        if any(of.count(column) > 1 for column in of):
            yield ("key",), "names a column of the source twice"

    @property
    def repeats(self) -> bool:
        return self.from_.repeats

    @property
    def makes_dead(self) -> str | None:
        return "on_miss" if self.on_miss == "dead" else None

    def transform(self, place: StepPlace) -> Transform:
        from windrow.ingest.transform.lookup.step import Lookup  # loads Arrow and polars

        column, _, order = (self.first_by or "").partition(" ")
        return Lookup(
            self.lookup,
            tuple(self.key.items()),
            tuple(self.take.items()),
            self.from_.source(place.folder),
            self.on_miss,
            (column, order == "desc") if column else None,
            place.setting,
        )
