"""The spec of one pipeline: all settings that a user writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import SkipJsonSchema

from windrow.ingest.config.cluster import ClusterSpec, TuningSpec
from windrow.ingest.config.dagster import DagsterSpec
from windrow.ingest.config.for_each import ForEachSpec
from windrow.ingest.config.limits import DeadLettersSpec, LimitsSpec
from windrow.ingest.config.maintain import MaintainSpec
from windrow.ingest.config.position import position_of
from windrow.ingest.config.source import SourceSpec, unread
from windrow.ingest.config.transform import TransformSpec, transform_mistakes
from windrow.ingest.config.window import MicroBatches, TimeWindows, WindowSpec, is_cron
from windrow.ingest.errors import GridError, SpecError
from windrow.ingest.formats.kinds import ASKING, DecodeSection, asks_registry
from windrow.ingest.model.boundary import label_text
from windrow.ingest.model.grid import BATCH, parse_windows, window_at
from windrow.ingest.model.metadata_columns import DEFAULT, METADATA
from windrow.ingest.model.plan import Window
from windrow.ingest.model.source import Initializer, Pattern
from windrow.ingest.registry.client import Registry
from windrow.ingest.registry.settings import RegistrySpec, registry_of
from windrow.ingest.settings.document import SettingPath, suggest
from windrow.ingest.settings.paths import absolute
from windrow.ingest.settings.values import (
    NO_SECRETS,
    Default,
    Reference,
    Section,
    TextOrEmpty,
    Values,
    as_instant,
    check_location,
    names_in,
    off_grid,
    refuse,
    section_of,
    sentence,
)
from windrow.ingest.sinks.kind import OnClusterSection, SinkSection
from windrow.ingest.sinks.kinds import SinkOfItsKind

NOT_WRITTEN = {
    "folder": "relative paths are relative to the spec's own folder",
    "spec_file": "it is the spec's own",
    "named_clusters": (
        "a cluster of windrow.yaml is named as the cluster of source, sink or dead_letters"
    ),
}
"""Fields that `ingest.config.load` sets, and the reason why a file can't have them."""


def _pipeline_id(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", value):
        raise ValueError("must be 1 to 100 of a-z A-Z 0-9 . _ -")
    if not value.strip("."):
        raise ValueError("must be 1 to 100 of a-z A-Z 0-9 . _ -, not only dots")
    return value


PipelineId: TypeAlias = Annotated[
    TextOrEmpty, AfterValidator(_pipeline_id), Values("1 to 100 of `a-z A-Z 0-9 . _ -`")
]


METADATA_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in METADATA},
    "additionalProperties": False,
}


_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def check_metadata(value: object) -> Mapping[str, str]:
    """Validates the section and adds the defaults, in the order of `METADATA`."""
    if not isinstance(value, Mapping):
        raise sentence("must be a mapping")
    mistakes: list[tuple[SettingPath, str]] = [
        ((str(name),), f"unknown key{suggest(str(name), tuple(METADATA))}")
        for name in value
        if name not in METADATA
    ]
    written = {
        name: None if column == "none" else column
        for name, column in value.items()
        if name in METADATA
    }
    mistakes += [
        ((name,), message)
        for name, column in written.items()
        if (message := _column_mistake(name, column)) is not None
    ]
    column_by_name = {**DEFAULT, **written}
    metadata_columns = {
        name: str(column_by_name[name]) for name in METADATA if column_by_name.get(name) is not None
    }
    name_by_column: dict[str, str] = {}
    for name, column in metadata_columns.items():
        previous_name = name_by_column.setdefault(column.casefold(), name)
        if previous_name != name:
            mistaken_name = name if name in written else previous_name
            mistakes.append(
                (
                    (mistaken_name,),
                    (
                        f"{previous_name} and {name} would both be column {column}, and"
                        " tables don't tell case apart"
                    ),
                )
            )
    if mistakes:
        refuse(mistakes)
    return metadata_columns


def _column_mistake(name: str, column: object) -> str | None:
    if column is None:
        needed = METADATA[name].needed
        return None if needed is None else f"can't be left out: {needed}"
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        return (
            "must be a column name, up to 128 of a-z A-Z 0-9 _ and no digit first, or none to leave"
            " it out"
        )
    return None


class PipelineSpec(Section):
    """One pipeline: topics become a table, window by window.

    `id` is the pipeline's permanent identity: its windows and frozen boundaries have it.
    Three fields can't be written in a file: the spec's `folder`, its `spec_file` if it
    comes from one, and the `named_clusters` of a windrow.yaml that it refers to.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        print(spec.id, "reads", spec.source.topic, "into", spec.sink_path())
    """

    id: PipelineId = Field(
        description="The pipeline's identity, for ever: its windows and frozen boundaries carry it."
    )
    source: SourceSpec = Field(
        description=(
            "Which topics are read, from where on, how strictly and how fast. Exactly one of"
            " `topic`, `topic_pattern` and `partitions` is set."
        )
    )
    window: WindowSpec = Field(description="The grid of windows, and when one is run.")
    decode: DecodeSection = Field(description="How a message's bytes become columns.")
    transform: TransformSpec | None = Field(
        default=None,
        description=(
            "What becomes of decoded rows before they go to the table: SQL on each row, or a"
            " function of Spark's on all of a window."
        ),
    )
    sink: SinkOfItsKind = Field(description="The table.")
    limits: LimitsSpec = Field(
        default=LimitsSpec(),
        description=(
            "How many dead letters a window may have: in all, and by the stage that refused them."
        ),
    )
    dead_letters: DeadLettersSpec | None = Field(
        default=None,
        description="A topic to which dead letters are published, beside the table that has them.",
    )
    metadata: Annotated[
        Mapping[str, str],
        PlainValidator(check_metadata),
        WithJsonSchema(METADATA_SCHEMA),
        Values("`{NAME: COLUMN}`, `{NAME: none}`"),
    ] = Field(
        default=DEFAULT,
        description=(
            "What a row says of its message, and what the column is called. An entry renames or"
            " adds a column, or leaves it out."
        ),
    )
    state: Annotated[
        Annotated[TextOrEmpty, Field(min_length=1), AfterValidator(check_location)] | None,
        Values("a path, or a database's URL"),
        Default("`$WINDROW_STATE`, else `.windrow/state.db` beside the file"),
    ] = Field(
        default=None,
        repr=False,  # it may contain a password
        description="Where the ledger is: SQLite or PostgreSQL.",
    )
    state_password: Annotated[Reference | None, Default("none")] = Field(
        default=None,
        repr=False,
        description=(
            "The password of the user in the URL of a ledger in PostgreSQL. It is read for each new"
            " connection."
        ),
    )
    maintain: MaintainSpec = Field(
        default=MaintainSpec(),
        description=(
            "How `windrow maintain` joins small files of the table, and how long it keeps old"
            " versions and files ([operations.md](operations.md#maintenance))."
        ),
    )
    dagster: DagsterSpec = Field(
        default=DagsterSpec(),
        description=(
            "What Dagster shows of the table, and how it runs it; the command reads it for mistakes"
            " alone. What isn't here, a subclass of the component sets in Python"
            " ([dagster.md](dagster.md#what-dagster-knows-of-the-table))."
        ),
    )
    for_each: ForEachSpec | None = Field(
        default=None,
        description=(
            "Makes one pipeline of this file for each of these topics. Everything else in the file"
            " is what they have in common: in it `{name}` stands for the name of the topic, and"
            " `source` says no topic ([pipeline.md](pipeline.md#one-file-for-many-topics))."
        ),
    )
    folder: Path
    spec_file: SkipJsonSchema[Path | None] = None
    named_clusters: SkipJsonSchema[Mapping[str, ClusterSpec]] = Field(
        default_factory=dict, repr=False
    )

    @property
    def spec_path(self) -> Path | None:
        """The path by which commands find the spec: its file, or `FILE:ID` of several pipelines."""
        file = self.spec_file
        return file if file is None or self.for_each is None else Path(f"{file}:{self.id}")

    @property
    def watched_pattern(self) -> Pattern | None:
        """The pattern whose new topics are looked for, by the first pipeline of a file alone."""
        for_each = self.for_each
        if for_each is None or for_each.topic_pattern is None:
            return None
        first = next(iter(for_each.topics))
        return Pattern(for_each.topic_pattern) if self.source.topic == first else None

    @classmethod
    def known_keys(cls) -> list[str]:
        """Returns the sections and settings that a file may have."""
        return [name for name in super().known_keys() if name not in NOT_WRITTEN]

    @property
    def route_specs(self) -> Mapping[str, PipelineSpec]:
        """The specs of tables with rows of their own, by the tables' names; or none.

        Each is this spec with the sections `decode`, `transform` and `sink` of one table.

        Raises:
            SpecError: a section doesn't fit what leads messages to their tables.
        """
        sections = self.sink.own_sections(self.decode, self.transform)
        return {name: self.model_copy(update={**own}) for name, own in sections.items()}

    def schema_file(self) -> Path | None:
        """Returns the file of the schema's model; None if the model is imported from a package."""
        file = (self.decode.schema_ or "").rpartition(":")[0]
        return self.folder / file if file.endswith(".py") else None

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds conflicts between sections."""
        source, window = section_of(written, "source"), section_of(written, "window")
        if source.get("start") == "label" and window.get("grid") == BATCH:
            yield (
                ("source", "start"),
                (
                    "label is for windows in time: a micro-batch's label is a number, which cuts"
                    " no log"
                ),
            )
        if (
            source.get("isolation") == "read_uncommitted"
            and "max_wait" in window
            and window.get("grid") != BATCH
        ):
            yield (
                ("window", "max_wait"),
                (
                    "is for open transactions, which read_uncommitted doesn't wait for: leave one"
                    " of them out"
                ),
            )
        clusters = section_of(written, "named_clusters")
        yield from _registry_mistakes(source, written, section_of(written, "sink"), clusters)
        yield from _start_mistakes(str(written.get("id")), window)
        for table in _tables(written):
            yield from _delete_mistakes(table)
        yield from transform_mistakes(written)

    @field_validator("window")
    @classmethod
    def _stop_fits(cls, window: WindowSpec, info: ValidationInfo) -> WindowSpec:
        """Refuses a stop with offsets of topics that are not read."""
        source = info.data.get("source")
        stop = window.stop if isinstance(window, MicroBatches) else None
        if source is not None and (mistakes := list(unread(source.selection(), stop))):
            refuse((("stop", *path), message) for path, message in mistakes)
        return window

    @field_validator("maintain")
    @classmethod
    def _fits_sink(cls, maintain: MaintainSpec, info: ValidationInfo) -> MaintainSpec:
        """Refuses limits that don't apply to the table."""
        sink: SinkSection | None = info.data.get("sink")
        written = maintain.model_fields_set & {"file_size", "keep_versions"}
        if sink is not None and sink.only_sweeps and written:
            message = (
                f"isn't for sink.kind {sink.kind}, whose maintenance only removes staged files:"
                " leave it out"
            )
            refuse(((name,), message) for name in sorted(written))
        obstacle = None if sink is None or maintain.keep_rows is None else sink.expiry_obstacle
        if obstacle is not None:
            refuse([(("keep_rows",), f"isn't for this table: {obstacle}")])
        return maintain

    @field_validator("dagster")
    @classmethod
    def _fits_windows(cls, dagster: DagsterSpec, info: ValidationInfo) -> DagsterSpec:
        """Refuses settings that this kind of windows can't have."""
        window = info.data.get("window")
        if window is not None and (mistakes := list(dagster.mistakes(window))):
            refuse(mistakes)
        return dagster

    @property
    def stop(self) -> Initializer | None:
        """The end of micro-batches, in the form that planning needs; None: they have no end."""
        stop = self.window.stop if isinstance(self.window, MicroBatches) else None
        return None if stop is None else position_of(stop, self.source.topic_names())

    @property
    def keeps_unavailable(self) -> bool:
        """Whether rows keep their values in the columns that a change leaves unchanged.

        It is False with a step whose function gets null for such columns.
        """
        steps = () if self.transform is None else self.transform.steps
        return self.sink.keeps_unavailable and all(step.keeps_unavailable for step in steps)

    @property
    def has_unavailable(self) -> bool:
        """Whether changes may leave values unchanged that the table keeps (`UNAVAILABLE`)."""
        return self.keeps_unavailable and getattr(self.decode, "unavailable", "dead") in {
            None,
            "keep",
        }

    @property
    def in_order(self) -> bool:
        """Whether a refused window blocks the windows after it.

        If they were committed first, the refused window could never be committed.
        """
        return (
            self.sink.in_order
            or self.has_unavailable
            or any(route.in_order for route in self.route_specs.values())
        )

    @property
    def named_cluster(self) -> ClusterSpec | None:
        """The cluster of windrow.yaml that the source names; None if it names none.

        Raises:
            SpecError: `named_clusters` lacks it.
        """
        name = self.source.cluster
        return None if name is None else self._find_cluster("source", name)

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster to read from.

        It is the source's own cluster, or the named one, with its settings overridden by
        the source's.

        Raises:
            SpecError: `named_clusters` lacks the cluster that the source names.
        """
        source = self.source
        if self.named_cluster is not None:
            return self.named_cluster.under(source.client, source.tuning)
        assert source.bootstrap_servers is not None, "SourceSpec refuses a source that says neither"
        return ClusterSpec(
            bootstrap_servers=source.bootstrap_servers, client=source.client, tuning=source.tuning
        )

    @property
    def dead_cluster(self) -> ClusterSpec | None:
        """The cluster of the dead-letter topic; None: the source's cluster.

        Raises:
            SpecError: `named_clusters` lacks the cluster that the section names.
        """
        dead_letters = self.dead_letters
        if dead_letters is None:
            return None
        if dead_letters.cluster is not None:
            named = self._find_cluster("dead_letters", dead_letters.cluster)
            return named.under(dead_letters.client, TuningSpec())
        address = dead_letters.bootstrap_servers
        return (
            None
            if address is None
            else ClusterSpec(bootstrap_servers=address, client=dead_letters.client)
        )

    @property
    def reached_sink(self) -> SinkSection:
        """The sink's section, with the address of its Kafka cluster if it needs one.

        The address is the section's own, or that of the named cluster, or that of the
        source.

        Raises:
            SpecError: `named_clusters` lacks the cluster that the sink names.
        """
        sink = self.sink
        if not isinstance(sink, OnClusterSection) or sink.bootstrap_servers is not None:
            return sink
        if sink.cluster is None:
            return sink.with_cluster(
                self.cluster.bootstrap_servers, self.cluster.client, self._source_registry
            )
        named = self._find_cluster("sink", sink.cluster)
        cluster = named.under(sink.client, TuningSpec())
        return sink.with_cluster(cluster.bootstrap_servers, cluster.client, named.registry)

    def _find_cluster(self, section: str, name: str) -> ClusterSpec:
        """Returns the cluster that a section names.

        `load_spec` has found it; a spec that is made in Python may lack it.

        Raises:
            SpecError: `named_clusters` lacks the cluster.
        """
        cluster = self.named_clusters.get(name)
        if cluster is None:
            raise SpecError(
                f"{section}.cluster names the cluster {name}, and named_clusters doesn't have it",
                "spec",
                "Load the spec with load_spec, which looks clusters up in windrow.yaml; or give"
                f" PipelineSpec the cluster as named_clusters={{{name!r}: ...}}, or its address as"
                f" {section}.bootstrap_servers in place of the name.",
            )
        return cluster

    @property
    def registry(self) -> Registry | None:
        """The schema registry that the formats use; None if no format uses one."""
        return (
            self.stated_registry
            if any(
                part is not None and part.format in ASKING
                for spec in (self, *self.route_specs.values())
                for part in (spec.decode, spec.decode.key)
            )
            else None
        )

    @property
    def stated_registry(self) -> Registry | None:
        """The schema registry of the topics, even if no format uses it.

        It is the source's own, or that of the named cluster.
        """
        registry = self._source_registry
        return None if registry is None else registry_of(registry, self.folder)

    @property
    def _source_registry(self) -> RegistrySpec | None:
        return self.source.registry or (
            None if self.named_cluster is None else self.named_cluster.registry
        )

    def dump_for_digest(self, *sections: str) -> str:
        """Returns sections as JSON of which digests are made.

        References to secrets, the client of the table's cluster and assets of lookups are left out,
        since no row depends on them. A reference may also be a path of this machine.
        """
        return self.model_dump_json(
            include={*sections},
            exclude={
                "transform": {"steps": {"__all__": {"from_": {"asset"}}}},
                "sink": {"client"},
            },
            context=NO_SECRETS,
        )

    def sink_path(self) -> str:
        """Returns the path, URL or name of the table, in the notation of its kind."""
        return self.sink.location(self.folder)

    def state_url(self) -> str:
        """Returns the path or URL of the ledger.

        It is the spec's own, or else $WINDROW_STATE, or else .windrow/state.db in the
        spec's folder. It doesn't depend on the working directory, so that the command and
        Dagster use the same ledger.

        Raises:
            SpecError: WINDROW_STATE is neither a path nor a URL.
        """
        default_path = self.folder / ".windrow" / "state.db"
        try:
            return absolute(
                self.state or os.environ.get("WINDROW_STATE") or str(default_path), self.folder
            )
        except ValueError as error:
            raise SpecError(
                f"WINDROW_STATE {error}",
                "spec",
                "Fix the environment variable, or set state in the spec.",
            ) from None


def windows_named(spec: PipelineSpec, text: str) -> list[Window]:
    """Returns the windows of a pipeline that a text names, in order.

    Args:
        spec: the pipeline's spec.
        text: the instant at which a window starts (`2026-01-05T09:00:00Z`, or as Dagster's
            partition key, `2026-01-05-09:00`); a micro-batch's number or name (`7`,
            `batch-000000007`); or `START/END` for all windows between two.

    Raises:
        SpecError: the text names no window, one that isn't on the pipeline's grid, or one
            before the pipeline's start.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        for window in windrow.windows_named(spec, "2026-01-05T09:00:00Z/2026-01-05T11:00:00Z"):
            print(window.key)
    """
    try:
        windows = parse_windows(spec.id, spec.window.grid, text)
    except GridError as error:
        raise SpecError(error.message, "spec", error.advice) from None
    span, grid = windows[0].span, spec.window
    if span is not None and isinstance(grid, TimeWindows) and span[0] < grid.start:
        raise SpecError(
            f"Window {windows[0].key} lies before the pipeline's start, {label_text(grid.start)}",
            "spec",
            f"Choose {label_text(grid.start)} or a later one.",
        )
    return windows


_WrittenTable: TypeAlias = tuple[SettingPath, Mapping[str, Any], SettingPath, Mapping[str, Any]]
"""The path and the section of a table, and those of its `decode`, as they are written."""


def _tables(written: Mapping[str, Any]) -> Iterator[_WrittenTable]:
    """Yields the table of a spec, then each of its routes."""
    sink, decode = section_of(written, "sink"), section_of(written, "decode")
    yield ("sink",), sink, ("decode",), decode
    tables = sink.get("tables")
    for number, table in enumerate(tables if isinstance(tables, list | tuple) else ()):
        if isinstance(table, Mapping):
            path: SettingPath = ("sink", "tables", number)
            own = section_of(table, "decode")
            decode_path = (*path, "decode") if own else ("decode",)
            yield (*path, "sink"), section_of(table, "sink"), decode_path, own or decode


def _delete_mistakes(table: _WrittenTable) -> Iterator[tuple[SettingPath, str]]:
    """Finds settings of a table and its `decode` that conflict with deletes.

    If a null value deletes a row, `on_null` has no meaning. A primary key can't come from
    headers, because the message of a delete may lack them.
    """
    sink_path, sink, decode_path, decode = table
    key = names_in(sink.get("primary_key"))
    of_headers = [name for name in key if name in section_of(decode, "headers")]
    if of_headers:
        yield (
            (*sink_path, "primary_key"),
            (
                f"{', '.join(of_headers)}: comes from a header; a key comes from the message's key"
                " or its value"
            ),
        )
    of_key = set(key) <= set(names_in(section_of(decode, "key").get("fields")))
    if key and of_key and sink.get("version") is None and "on_null" in decode:
        yield (
            (*decode_path, "on_null"),
            (
                "can't be said where decode.key has all of sink.primary_key: a message without a"
                " value deletes its row"
            ),
        )


def _registry_mistakes(
    source: Mapping[str, Any],
    written: Mapping[str, Any],
    sink: Mapping[str, Any],
    named_clusters: Mapping[str, Any],
) -> Iterator[tuple[SettingPath, str]]:
    """Refuses a missing registry, and a registry that no format uses.

    A format with schemas in a registry needs a registry. A registry that only this pipeline
    has must be used by a format.
    """
    decoding = [
        path
        for _, _, own_path, own in _tables(written)
        for path, part in ((own_path, own), ((*own_path, "key"), section_of(own, "key")))
        if asks_registry(part)
    ]
    writing = [
        ("sink", part, "format")
        for part in ("key", "value")
        if asks_registry(section_of(sink, part))
    ]
    of_source = (source.get("registry"), _registry_of(named_clusters, source))
    own_cluster = any(sink.get(name) is not None for name in ("cluster", "bootstrap_servers"))
    of_cluster = (_registry_of(named_clusters, sink),) if own_cluster else of_source
    if decoding and of_source == (None, None):
        yield (
            (*decoding[0], "format"),
            (
                "asks a schema registry: say which one as source.registry, or beside the cluster in"
                " windrow.yaml"
            ),
        )
    if writing and not any(
        registry is not None for registry in (sink.get("registry"), *of_cluster)
    ):
        yield (
            writing[0],
            (
                "asks a schema registry: say which one as sink.registry, or beside the sink's"
                " cluster in windrow.yaml"
            ),
        )
    if sink.get("registry") is not None and not writing:
        yield (
            ("sink", "registry"),
            (
                "would not be asked: neither the sink's key nor its value goes by schemas of a"
                " registry"
            ),
        )
    shared = writing and not own_cluster and sink.get("registry") is None
    if source.get("registry") is not None and not decoding and not shared:
        yield (
            ("source", "registry"),
            "would not be asked: no format of this pipeline's goes by schemas of a registry",
        )


def _registry_of(
    named_clusters: Mapping[str, Any], section: Mapping[str, Any]
) -> RegistrySpec | None:
    """Returns the registry of the cluster that a section names."""
    cluster = named_clusters.get(str(section.get("cluster")))
    return cluster.registry if isinstance(cluster, ClusterSpec) else None


def _start_mistakes(
    pipeline_id: str, window: Mapping[str, Any]
) -> Iterator[tuple[SettingPath, str]]:
    """Refuses a start that is not on the grid. The fields' validation reports wrong values."""
    grid = window.get("grid")
    try:
        start = as_instant(window.get("start"))
    except ValueError:
        return
    if not isinstance(grid, str) or not is_cron(grid):
        return
    try:
        window_at(pipeline_id, grid, start)
    except GridError as error:
        yield ("window", "start"), off_grid(window.get("start"), start, error)
    except SpecError as error:
        yield ("window", "start"), f"{error.message}. {error.advice}"
