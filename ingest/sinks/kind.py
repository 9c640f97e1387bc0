"""The interface of a kind of sink: its section of the spec, and the sink made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field

from windrow.ingest.registry.settings import RegistrySpec
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.settings.paths import WAY_OUT, secret_part
from windrow.ingest.settings.values import (
    ClientProperties,
    ClusterName,
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
    from windrow.ingest.schema.primary_key import PrimaryKey

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
    def key(self) -> PrimaryKey | None:
        """The primary key; None if rows are only appended."""
        return None

    @property
    def keeps(self) -> bool:
        """Whether a row keeps the values that a change leaves out (`UNAVAILABLE`)."""
        return False

    @property
    def in_order(self) -> bool:
        """Whether windows must be committed in their order."""
        return False

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
