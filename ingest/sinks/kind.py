"""The interface of a kind of sink: its section of the spec, and the sink made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, Field

from windrow.ingest.registry.settings import RegistrySpec
from windrow.ingest.schema.partition_fields import (
    MOST_PARTITIONS,
    PartitionField,
    PartitionTransform,
)
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.settings.paths import WAY_OUT, secret_part
from windrow.ingest.settings.values import (
    ClientProperties,
    ClusterName,
    Count,
    Default,
    Section,
    Servers,
    Text,
    TextOrEmpty,
    Values,
    check_location,
    names_in,
    sentence,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink

Rows: TypeAlias = "pa.Schema | Callable[[], pa.Schema]"
"""The columns of a row without the metadata columns, or a function that loads them.

The function is called at the first write.
"""


def _without_secret(value: str) -> str:
    """Refuses a place that is empty or holds a secret."""
    secret = secret_part(value)
    if secret is not None:
        raise sentence(f"must not hold {secret}: {WAY_OUT}")
    return check_location(value)


StoragePlace: TypeAlias = Annotated[
    TextOrEmpty,
    Field(min_length=1),
    AfterValidator(_without_secret),
    Values("a path, or a URL without user, password and options"),
]
"""A folder or bucket that tasks write to."""

Mode: TypeAlias = Annotated[
    Literal["append", "upsert", "delete-aware"],
    Field(
        description=(
            "How a row is written: it is added to the table (`append`), or replaces the row with"
            " its key (`upsert`; a delete removes that row). `delete-aware`: as `upsert`, but the"
            " key of a deleted row stays in the table, with `_deleted` true."
        )
    ),
]
"""A setting of a kind with a primary key: the effect of a row on the table."""
KeyColumns: TypeAlias = Annotated[
    Annotated[tuple[Text, ...], Field(min_length=1)] | None,
    Values("a list of columns"),
    Default("none, as for `append`"),
    Field(
        description=(
            "The columns of the schema by which rows replace each other. For the modes `upsert` and"
            " `delete-aware`, which need it."
        )
    ),
]
"""A setting of a kind with a primary key: its columns."""
Version: TypeAlias = Annotated[
    Text | None,
    Values("a column"),
    Default("the order of the log decides"),
    Field(
        description=(
            "The row with the greatest value of this column is a key's row, whatever the order of"
            " the log. For `upsert`; nothing is deleted then, because a delete has no version."
        )
    ),
]
"""A setting of a kind with a primary key: the column that decides which row of a key counts."""
Buckets: TypeAlias = Annotated[
    Annotated[Count, Field(le=4096)] | None,
    Values("a number from 1 to 4096"),
    Default("16"),
    Field(
        description=(
            "Into how many parts keys are divided, for ever. A commit holds the window's changes of"
            " one part in memory. Goes with `primary_key`."
        )
    ),
]
"""A setting of a kind whose rows of a primary key are in files: the number of buckets."""


Evolve: TypeAlias = Annotated[
    Literal["none", "add_columns", "widen"],
    Field(
        description=(
            "How the table's columns change when the schema has others: not at all (`none`); new"
            " nullable ones are added (`add_columns`); numbers also become wider, and columns"
            " nullable (`widen`). Any other difference is refused before anything is read."
        )
    ),
]
"""A setting: the allowed changes of a table's columns (`sinks.kit.columns.schema_evolution`)."""


_Column: TypeAlias = Annotated[Text | None, Values("a column"), Default("none")]
_TRANSFORMS: tuple[PartitionTransform, ...] = get_args(PartitionTransform)


class PartitionSection(Section):
    """A partition of the table by a column: exactly one transform, with its column."""

    day: _Column = Field(default=None, description="A date or timestamp: by its day in UTC.")
    month: _Column = Field(default=None, description="By its month.")
    year: _Column = Field(default=None, description="By its year.")
    hour: _Column = Field(default=None, description="A timestamp: by its hour.")
    bucket: _Column = Field(
        default=None,
        description="A column of many values: by Iceberg's hash of it. Goes with `buckets`.",
    )
    identity: _Column = Field(default=None, description="A column of few values: by the value.")
    buckets: Annotated[
        Annotated[Count, Field(le=MOST_PARTITIONS)] | None,
        Values(f"a number from 1 to {MOST_PARTITIONS}"),
        Default("none, as goes without `bucket`"),
    ] = Field(default=None, description="Into how many parts `bucket` divides the values.")
    name: Annotated[
        Text | None, Values("a name"), Default("the column and the transform: `created_at_day`")
    ] = Field(
        default=None,
        alias="as",
        description=(
            "The name of the partition: in Delta and in folders of a column that queries see, in"
            " Iceberg of the partition field."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Checks that one transform is set, and that a bucket has a number of buckets."""
        transforms = [name for name in _TRANSFORMS if written.get(name) is not None]
        if len(transforms) != 1:
            yield (), f"exactly one of {', '.join(_TRANSFORMS)} names a column"
        if (written.get("bucket") is None) != (written.get("buckets") is None):
            yield ("buckets",), "goes with bucket, which needs it"

    @property
    def field(self) -> PartitionField:
        """The partition field."""
        columns = (self.day, self.month, self.year, self.hour, self.bucket, self.identity)
        transform, column = next((t, c) for t, c in zip(_TRANSFORMS, columns, strict=True) if c)
        name = self.name or f"{column}_{transform}"
        return PartitionField(transform, column, name, self.buckets or 0)


PartitionBy: TypeAlias = Annotated[
    tuple[PartitionSection, ...],
    Default("none: by the window alone"),
    Field(
        description=(
            "A list of columns: rows of a window with the same days, buckets or values of these"
            " columns are in one file. For new tables of the kinds `delta`, `iceberg` and `files`"
            " with `append`."
        )
    ),
]
"""A setting of a kind with files: the columns by which a new table is partitioned."""


def cluster_conflicts(written: Mapping[str, Any], noun: str) -> Iterator[tuple[SettingPath, str]]:
    """Yields two settings that both name the cluster, and `client` without either of them.

    The properties of the source's cluster are in `source.client`.

    Args:
        written: the settings in the spec.
        noun: the object on the cluster, for the message.
    """
    stated = [name for name in ("cluster", "bootstrap_servers") if written.get(name) is not None]
    if len(stated) > 1:
        yield (
            ("bootstrap_servers",),
            (
                "'cluster' and 'bootstrap_servers' must not be set together: one says which"
                f" cluster has the {noun}"
            ),
        )
    if "client" in written and not stated:
        yield (
            ("client",),
            (
                "goes with cluster or bootstrap_servers: to the source's cluster it is"
                " source.client that says how"
            ),
        )


class SinkSection(Section):
    """The `sink` section of a spec. Each kind has its own model, with its options.

    The model's module imports nothing heavy; `make` and `dead_letters` do.
    """

    kind: str

    @property
    def only_sweeps(self) -> bool:
        """Whether the maintenance of its tables only removes staged files."""
        return False

    @property
    def expiry_obstacle(self) -> str | None:
        """The reason why rows of old windows can't be removed; None if they can."""
        if self.key is None:
            return None
        return "a row belongs to its key there, and to no window: publish a delete of the key"

    @property
    def key(self) -> PrimaryKey | None:
        """The primary key; None if rows are only appended."""
        return None

    @property
    def keeps_unavailable(self) -> bool:
        """Whether a row keeps the values that a change leaves out (`UNAVAILABLE`)."""
        return False

    @property
    def in_order(self) -> bool:
        """Whether windows must be committed in their order."""
        return False

    def own_sections(
        self, decode: Section, transform: Section | None
    ) -> Mapping[str, Mapping[str, Any]]:
        """Returns, for each of several tables with rows of its own, the sections of its spec.

        They are `decode`, `transform` and `sink`, by the table's name. There are none if all
        tables take the same rows.

        Args:
            decode: the section of the pipeline's spec.
            transform: the same.

        Raises:
            SpecError: a section doesn't fit what leads messages to their tables.
        """
        del decode, transform
        return {}

    def router(self) -> Any:
        """Returns what finds the table of each message, where tables have rows of their own.

        It is an `ingest.formats.routed.Chooser`.
        """
        raise NotImplementedError

    def location(self, folder: Path) -> str:
        """Returns the table's place, for messages.

        Args:
            folder: the spec's folder.
        """
        raise NotImplementedError

    def make(self, rows: Rows, metadata: Mapping[str, str], folder: Path) -> Sink:
        """Makes the sink that the section describes; opens nothing yet.

        Raises:
            SpecError: no table can be at that place, or no table can have such rows or metadata
                columns.
        """
        raise NotImplementedError

    def dead_place(self, folder: Path) -> str:
        """Returns the place of the table of its dead letters, for messages."""
        return f"{self.location(folder)}_dead"

    def dead_letters(self, folder: Path) -> DeadLetters:
        """Makes the table of its dead letters, which may be of another kind.

        Raises:
            SpecError: no table can be at that place.
        """
        raise NotImplementedError


def key_conflicts(written: Mapping[str, Any], *goes_with: str) -> Iterator[tuple[SettingPath, str]]:
    """Yields the settings of keys that contradict the mode.

    Args:
        written: the settings in the spec.
        goes_with: names of more settings that need a primary key.
    """
    mode, keyed = written.get("mode", "append"), written.get("mode") in {"upsert", "delete-aware"}
    if keyed and written.get("primary_key") is None:
        yield ("mode",), f"{mode} needs primary_key: by which columns rows replace each other"
    if mode == "append":
        for name in ("primary_key", "version", *goes_with):
            if written.get(name) is not None:
                yield (
                    (name,),
                    "goes with mode upsert or delete-aware: rows that are appended replace none",
                )
    if keyed and written.get("partition_by"):
        yield (
            ("partition_by",),
            (
                "goes with mode append: a row is replaced within the bucket of its key, and one"
                " whose column changed would stay in its old partition"
            ),
        )
    if mode == "delete-aware" and written.get("version") is not None:
        yield (
            ("version",),
            "goes with mode upsert: what deletes has no version, and nothing would ever be marked",
        )
    names = names_in(written.get("primary_key"))
    if len(set(names)) < len(names):
        yield ("primary_key",), "names a column twice"
    if written.get("version") in names:
        yield ("version",), "is a column of primary_key, so all rows of a key have the same"


class KeyedSection(SinkSection):
    """The section of a kind whose tables can have a primary key. The kind has the settings."""

    if TYPE_CHECKING:
        mode: Mode
        primary_key: KeyColumns
        version: Version

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields settings of keys that contradict the mode."""
        yield from key_conflicts(written, "buckets")

    @property
    def key(self) -> PrimaryKey | None:
        if self.primary_key is None:
            return None
        key = PrimaryKey(self.primary_key, self.mode == "delete-aware", self.version)
        buckets: int | None = getattr(self, "buckets", None)
        return key if buckets is None else replace(key, buckets=buckets)

    @property
    def keeps_unavailable(self) -> bool:
        """True without a version column.

        With versions, a change between two versions may come later, so kept values can't be
        right.
        """
        return self.primary_key is not None and self.version is None


class OnClusterSection(SinkSection):
    """The section of a kind whose table is on a Kafka cluster, by default the source's."""

    cluster: Annotated[ClusterName | None, Default("the source's cluster")] = Field(
        default=None,
        description=("The cluster, by its name in a `windrow.yaml`; or set `bootstrap_servers`."),
    )
    bootstrap_servers: Annotated[Servers | None, Default("the source's cluster")] = Field(
        default=None, description="The cluster's first addresses."
    )
    client: ClientProperties = Field(
        default_factory=dict,
        repr=False,
        description="Properties of librdkafka for it, as under `source.client`.",
    )
    registry: Annotated[RegistrySpec | None, Default("the registry of the table's cluster")] = (
        Field(
            default=None,
            description=("The schema registry, for the formats whose schemas it has."),
        )
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields the conflicts of the settings that name the table's cluster."""
        yield from cluster_conflicts(written, "table")

    def with_cluster(
        self, servers: str, client: ClientProperties, registry: RegistrySpec | None
    ) -> Self:
        """Returns the same section with its cluster filled in.

        Args:
            servers: the cluster's bootstrap servers.
            client: the properties of its clients.
            registry: the cluster's registry, for a section that names none.
        """
        filled_in = {
            "cluster": None,
            "bootstrap_servers": servers,
            "client": dict(client),
            "registry": self.registry or registry,
        }
        return self.model_copy(update=filled_in)


def delta_dead_letters(table: str) -> DeadLetters:
    """Makes a Delta table of dead letters, for a kind that has no such table of its own.

    Args:
        table: the place of the table whose dead letters they are.
    """
    delta: SinkSection = section_at("windrow.ingest.sinks.delta.kind:DeltaSection").model_validate(
        {"path": table}
    )
    return delta.dead_letters(Path("/"))
