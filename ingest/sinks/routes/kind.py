"""The kind `routes`: its section of the spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from windrow.ingest.errors import SpecError
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.kinds import validated_at
from windrow.ingest.settings.values import Default, Section, Text, Values, names_in, section_of
from windrow.ingest.sinks.kinds import TableOfItsKind
from windrow.ingest.sinks.kit import Rows, SinkSection

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink
    from windrow.ingest.sinks.routes.stage import Router


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
    decode: Annotated[
        Any,
        validated_at("windrow.ingest.formats.kinds:DecodeSection"),
        WithJsonSchema({"type": "object"}),
        Values("as `decode`"),
        Default("the pipeline's"),
    ] = Field(
        default=None,
        description=(
            "How the messages of this table become rows of its own schema. Each message is decoded"
            " by the section of its table."
        ),
    )
    transform: Annotated[
        Any,
        validated_at("windrow.ingest.config.transform:TransformSpec"),
        WithJsonSchema({"type": "object"}),
        Values("as `transform`, without a `spark` step"),
        Default("the pipeline's; none with a `decode` of its own"),
    ] = Field(default=None, description="The steps of this table's rows.")
    sink: Annotated[TableOfItsKind, Values("as `sink`")] = Field(
        description=(
            "The table, of any kind but `kafka` and `routes`. It may have a primary key, unless a"
            " column leads to it."
        )
    )

    @property
    def is_own(self) -> bool:
        """Whether its rows aren't those of the other tables."""
        return bool(self.decode or self.transform or self.sink.key)

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


class RoutesSection(SinkSection):
    """Several tables; each row goes to one of them, by what its message has."""

    kind: Literal["routes"]
    by: Literal["column", "header", "topic", "record", "schema_id"] = Field(
        description=(
            "What leads a row to its table: one of its columns, the last header with a name, its"
            " topic; or the name of the record, or the id of the schema, that the message was"
            " written with."
        )
    )
    name: Annotated[
        Text | None,
        Values("a column, or a header"),
        Default("none, as goes with anything but `by: column` and `by: header`"),
    ] = Field(default=None, description="The name of the column or header.")
    tables: Annotated[tuple[RouteSection, ...], Field(min_length=1)] = Field(
        description="The tables, in the order in which they are asked."
    )
    other: Annotated[TableOfItsKind, Values("as `sink`")] = Field(
        description=(
            "The table for all rows that no route takes, with all columns. It has the receipts of"
            " windows, too, and the dead letters beside it."
        )
    )

    unrouted: Literal["other", "dead"] = Field(
        default="other",
        description=(
            "What becomes of a row that no route takes, such as of a type that is unknown yet: it"
            " goes to `other`, or its message is a dead letter."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Checks that `name` fits `by`, and that no value leads to two tables."""
        by, named = written.get("by"), written.get("by") in {"column", "header"}
        if by is not None and not named and written.get("name") is not None:
            yield ("name",), "goes with by: column or by: header; a message has one topic"
        if named and written.get("name") is None:
            yield ("name",), f"is missing: which {by} leads to a table"
        yield from _keyed(
            ("other",), section_of(written, "other"), "of all other types, whose keys may be equal"
        )
        tables, seen_values = written.get("tables"), set[str]()
        tables = tables if isinstance(tables, list | tuple) else ()
        sections = [(n, table) for n, table in enumerate(tables) if isinstance(table, Mapping)]
        for number, table in sections:
            if by == "column":
                reason = "by a column: a row whose value changes would stay in its old table"
                yield from _keyed(("tables", number, "sink"), section_of(table, "sink"), reason)
            if by == "record" and table.get("pattern") is not None:
                yield (
                    ("tables", number, "pattern"),
                    "can't be asked for records: name them under values",
                )
            for value in names_in(table.get("values")):
                if value in seen_values:
                    yield ("tables", number, "values"), f"{value} leads to another table already"
                seen_values.add(value)

    @property
    def in_order(self) -> bool:
        return any(table.sink.in_order for table in self.tables)

    @property
    def has_own_rows(self) -> bool:
        """Whether messages are decoded by their tables, and not only their rows divided."""
        return self.by in _KNOWS or any(table.is_own for table in self.tables)

    def own_sections(
        self, decode: Section, transform: Section | None
    ) -> Mapping[str, Mapping[str, Any]]:
        sections = {}
        for number, route in enumerate(self.tables if self.has_own_rows else ()):
            own, steps = route.decode or decode, None if route.decode else transform
            if self.by in _KNOWS and not hasattr(own, _KNOWS[self.by]):
                raise SpecError(
                    f"sink.by is {self.by}, and the messages of tables.{number} are in a format"
                    " that doesn't know it",
                    "spec",
                    "Use avro-confluent or protobuf-confluent, for a schema's id also"
                    " json-schema-confluent; or take another sink.by.",
                )
            if self.by == "record":
                own = own.model_copy(update={"records": route.values, "other_records": "dead"})
            sections[f"tables.{number}"] = {
                "decode": own,
                "transform": route.transform or steps,
                "sink": route.sink,
            }
        others = {"decode": decode, "transform": transform, "sink": self.other}
        return {**sections, "other": others} if sections else {}

    def router(self) -> Router:
        from windrow.ingest.sinks.routes.stage import Router, Rule

        rules = [Rule(route.values or (), route.pattern) for route in self.tables]
        keyed = (*(route.sink.key is not None for route in self.tables), False)
        return Router(
            self.by,
            self.name or self.by,
            tuple(rules),
            self.unrouted == "dead",
            keyed if self.has_own_rows else None,
        )

    @property
    def only_sweeps(self) -> bool:
        return all(table.only_sweeps for table in (self.other, *(t.sink for t in self.tables)))

    @property
    def expiry_obstacle(self) -> str:
        return "a window's rows are in several tables"

    def location(self, folder: Path) -> str:
        """Returns the place of the table with the receipts."""
        return self.other.location(folder)

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        from windrow.ingest.errors import check_output
        from windrow.ingest.sinks.routes.sink import RoutedSink

        if "attempt" in metadata:
            raise SpecError(
                "metadata.attempt can't be kept where there are routes: the rows of one window may"
                " be of two attempts",
                "spec",
                "Leave it out.",
            )
        router, sections = self.router(), (*(table.sink for table in self.tables), self.other)
        sinks = [
            check_output(
                section,
                section.make(_table_columns(router, number, rows), metadata, folder),
                "stager",
            )
            for number, section in enumerate(sections)
        ]
        return RoutedSink(router, sinks, rows, metadata)

    def dead_place(self, folder: Path) -> str:
        return self.other.dead_place(folder)

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes the table of dead letters that belongs to the table with the receipts."""
        return self.other.dead_letters(folder)


_KNOWS = {"record": "other_records", "schema_id": "written_with"}
"""The option that a format has if its messages tell their record, or the id of their schema."""


def _table_columns(router: Router, table: int, rows: Rows) -> Rows:
    """Returns the columns of a table, or a function that loads them."""
    columns = partial(router.table_columns, table)
    return (lambda: columns(rows())) if callable(rows) else columns(rows)


def _keyed(
    path: SettingPath, table: Mapping[str, Any], reason: str
) -> Iterator[tuple[SettingPath, str]]:
    """Yields an error if the mode of a table isn't append."""
    if table.get("mode", "append") != "append":
        yield (*path, "mode"), f"must be append where there are routes {reason}"


def _is_pattern(pattern: str) -> bool:
    # Imported here: only a spec with a pattern loads Arrow.
    from windrow.ingest.sinks.routes.stage import Rule

    return Rule(pattern=pattern).is_readable()
