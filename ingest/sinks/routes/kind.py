"""The kind `routes`: its section of the spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import Default, Section, Text, Values, names_in, section_of
from windrow.ingest.sinks.kinds import TableOfItsKind
from windrow.ingest.sinks.kit import Rows, SinkSection

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink


class RouteSection(Section):
    """A table, and the values that lead to it."""

    values: Annotated[
        Annotated[tuple[Text, ...], Field(min_length=1)] | None,
        Values("a list of texts"),
        Default("none, as goes with `pattern`"),
    ] = Field(
        default=None,
        description="The values that lead to this table. Each leads to one table alone.",
    )
    pattern: Annotated[
        Text | None, Values("a regular expression"), Default("none, as goes with `values`")
    ] = Field(
        default=None,
        description=(
            "In their place: what matches a value as a whole (RE2). Of several tables the first"
            " that takes a value has it."
        ),
    )
    sink: Annotated[TableOfItsKind, Values("as `sink`")] = Field(
        description="The table, of any kind but `kafka` and `routes`; rows are only appended to it."
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Checks that exactly one of values and pattern is set, and the pattern is valid."""
        if (written.get("values") is None) == (written.get("pattern") is None):
            yield ("values",), "exactly one of values and pattern says what leads to the table"
        pattern = written.get("pattern")
        if isinstance(pattern, str) and not _is_pattern(pattern):
            yield (
                ("pattern",),
                (
                    "can't be read as a regular expression of RE2, which has no look-around and no"
                    " back-references"
                ),
            )
        yield from _keyed(("sink",), section_of(written, "sink"))


class RoutesSection(SinkSection):
    """Several tables; each row goes to one of them, by a column, a header or its topic."""

    kind: Literal["routes"]
    by: Literal["column", "header", "topic"] = Field(
        description=(
            "What leads a row to its table: one of its columns, the last header with a name, or its"
            " topic."
        )
    )
    name: Annotated[
        Text | None, Values("a column, or a header"), Default("none, as goes with `by: topic`")
    ] = Field(default=None, description="The name of the column or header.")
    tables: Annotated[tuple[RouteSection, ...], Field(min_length=1)] = Field(
        description="The tables, in the order in which they are asked."
    )
    other: Annotated[TableOfItsKind, Values("as `sink`")] = Field(
        description=(
            "The table for all rows that no route takes. It has the receipts of windows, too, and"
            " the dead letters beside it."
        )
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Checks that `name` fits `by`, and that no value leads to two tables."""
        if written.get("by") == "topic" and written.get("name") is not None:
            yield ("name",), "goes with by: column or by: header; a message has one topic"
        if written.get("by") in {"column", "header"} and written.get("name") is None:
            yield ("name",), f"is missing: which {written['by']} leads to a table"
        yield from _keyed(("other",), section_of(written, "other"))
        tables, seen_values = written.get("tables"), set[str]()
        for number, table in enumerate(tables if isinstance(tables, list | tuple) else ()):
            for value in names_in(table.get("values")) if isinstance(table, Mapping) else ():
                if value in seen_values:
                    yield ("tables", number, "values"), f"{value} leads to another table already"
                seen_values.add(value)

    def location(self, folder: Path) -> str:
        """Returns the place of the table with the receipts."""
        return self.other.location(folder)

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        from windrow.ingest.errors import SpecError, check_output
        from windrow.ingest.sinks.routes.sink import RoutedSink
        from windrow.ingest.sinks.routes.stage import Rule

        if "attempt" in metadata:
            raise SpecError(
                "metadata.attempt can't be kept where there are routes: the rows of one window may"
                " be of two attempts",
                "spec",
                "Leave it out.",
            )
        routes = [
            (
                Rule(route.values or (), route.pattern),
                check_output(route.sink, route.sink.make(rows, metadata, folder), "stager"),
            )
            for route in self.tables
        ]
        default_sink = check_output(self.other, self.other.make(rows, metadata, folder), "stager")
        return RoutedSink(self.by, self.name or "", routes, default_sink, rows, metadata)

    def dead_place(self, folder: Path) -> str:
        return self.other.dead_place(folder)

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes the table of dead letters that belongs to the table with the receipts."""
        return self.other.dead_letters(folder)


def _keyed(path: SettingPath, table: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    """Yields an error if the mode of a table isn't append."""
    if table.get("mode", "append") != "append":
        yield (
            (*path, "mode"),
            (
                "must be append where there are routes: a row whose values change would stay in its"
                " old table"
            ),
        )


def _is_pattern(pattern: str) -> bool:
    # Imported here: only a spec with a pattern loads Arrow.
    from windrow.ingest.sinks.routes.stage import Rule

    return Rule(pattern=pattern).is_readable()
