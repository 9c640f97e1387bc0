"""Connection and fetch settings of a cluster, in a spec's source or in a windrow.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Self, TypedDict

from pydantic import Field

from windrow.ingest.registry.settings import RegistrySpec
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import (
    ClientProperties,
    Count,
    Default,
    Duration,
    Section,
    Servers,
    Size,
    must,
)

_FETCHING = {
    "rack": "client.rack",
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_bytes": "fetch.max.bytes",
    "fetch_partition_bytes": "fetch.message.max.bytes",
    "fetch_wait": "fetch.wait.max.ms",
    "queue_bytes": "queued.max.messages.kbytes",
    "queue_messages": "queued.min.messages",
    "request_timeout": "socket.timeout.ms",
}
"""Properties of librdkafka, by the names under which users may look for them in `tuning`."""


class ReaderTuning(TypedDict, total=False):
    """Keyword arguments of the reader. A missing one has the reader's default."""

    rows_max: int
    bytes_max: int
    stall_seconds: float


class TuningSpec(Section):
    """Limits of a task that reads. None: windrow's default."""

    batch_messages: Annotated[Count | None, Default("`32768`")] = Field(
        default=None, description="How many messages are decoded at once."
    )
    batch_bytes: Annotated[Annotated[Size, Field(ge=1)] | None, Default("`16MiB`")] = Field(
        default=None, description="How many bytes of keys, values and headers are decoded at once."
    )
    stall_timeout: Annotated[
        Annotated[Duration, must(timedelta.__bool__, "be more than 0")] | None, Default("`60s`")
    ] = Field(
        default=None, description="How long a read may see nothing arrive before it is given up."
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields keys that are properties of `client` under another name."""
        for name in written.keys() & _FETCHING.keys():
            yield (name,), f"unknown key; did you mean {_FETCHING[name]} under client?"

    def with_fallback(self, fallback: TuningSpec) -> TuningSpec:
        """Returns these settings, completed by the settings of `fallback`."""
        return fallback.model_copy(update=self.model_dump(exclude_none=True))

    def reader(self) -> ReaderTuning:
        """Returns the settings for the reader."""
        tuning = ReaderTuning()
        if self.batch_messages is not None:
            tuning["rows_max"] = self.batch_messages
        if self.batch_bytes is not None:
            tuning["bytes_max"] = self.batch_bytes
        if self.stall_timeout is not None:
            tuning["stall_seconds"] = self.stall_timeout.total_seconds()
        return tuning


class ClusterSpec(Section):
    """A cluster's address, client properties, tuning and schema registry.

    The properties are those of librdkafka in the allow-list of
    `ingest.kafka.allowed_properties`.
    """

    bootstrap_servers: Servers = Field(description="The cluster's first addresses.")
    client: ClientProperties = Field(
        default_factory=dict,
        repr=False,
        description=(
            "Properties of librdkafka, out of an allow-list: security, connections, the rack, how"
            " much is fetched ahead."
        ),
    )
    tuning: TuningSpec = Field(
        default=TuningSpec(),
        description="How much a task decodes at once, and how long it waits.",
    )
    registry: RegistrySpec | None = Field(
        default=None,
        description="The schema registry that has the schemas of the cluster's messages.",
    )

    def under(self, client: ClientProperties, tuning: TuningSpec) -> Self:
        """Returns the cluster with a pipeline's own settings.

        A property or a setting of the pipeline replaces only the same one of the cluster.
        """
        return self.model_copy(
            update={
                "client": {**self.client, **client},
                "tuning": tuning.with_fallback(self.tuning),
            }
        )
