"""Connection and fetch settings of a cluster, in a spec's source or in a windrow.yaml."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Annotated, Self, TypedDict

import msgspec
from pydantic import AfterValidator, Field

from windrow.ingest.kafka.properties import TUNED, Tuning
from windrow.ingest.registry.settings import RegistrySpec
from windrow.ingest.settings.values import (
    ClientProperties,
    Count,
    Duration,
    LeftOut,
    Section,
    Servers,
    Size,
    Text,
    Values,
)


def _not_zero(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("must be more than 0")
    return value


class ReaderTuning(TypedDict, total=False):
    """Keyword arguments of the reader; one that is left out keeps the reader's default."""

    rows_max: int
    bytes_max: int
    stall_seconds: float


class TuningSpec(Section):
    """Limits of fetching, buffering and waiting. None: windrow's default."""

    rack: Annotated[Text | None, Values("a name")] = Field(
        default=None, description="Reads from a replica of this rack, where there is one."
    )
    fetch_min_bytes: Annotated[Size | None, LeftOut("`1`")] = Field(
        default=None, description="How much the broker waits for before it answers."
    )
    fetch_max_bytes: Annotated[Size | None, LeftOut("`50MiB`")] = Field(
        default=None, description="The most in one answer."
    )
    fetch_partition_bytes: Annotated[Size | None, LeftOut("`1MiB`")] = Field(
        default=None, description="The most of one topic-partition in one answer."
    )
    fetch_wait: Annotated[Duration | None, LeftOut("`1ms`")] = Field(
        default=None, description="How long the broker waits for `fetch_min_bytes`."
    )
    queue_bytes: Annotated[Size | None, LeftOut("`16MiB`")] = Field(
        default=None, description="The most that is fetched ahead of decoding."
    )
    queue_messages: Annotated[Count | None, LeftOut("`20000`")] = Field(
        default=None, description="Messages are fetched ahead while fewer than these are waiting."
    )
    batch_messages: Annotated[Count | None, LeftOut("`32768`")] = Field(
        default=None, description="How many messages are decoded at once."
    )
    batch_bytes: Annotated[Annotated[Size, Field(ge=1)] | None, LeftOut("`16MiB`")] = Field(
        default=None, description="How many bytes of keys, values and headers are decoded at once."
    )
    request_timeout: Annotated[Duration | None, LeftOut("`20s`")] = Field(
        default=None, description="How long one request may take."
    )
    stall_timeout: Annotated[
        Annotated[Duration, AfterValidator(_not_zero)] | None, LeftOut("`60s`")
    ] = Field(
        default=None, description="How long a read may see nothing arrive before it is given up."
    )

    def over(self, other: TuningSpec) -> TuningSpec:
        """Returns these settings, and the other's for those that are not set here."""
        return other.model_copy(update=self.model_dump(exclude_none=True))

    def properties(self) -> frozenset[str]:
        """The properties of librdkafka that these settings set."""
        return frozenset(
            TUNED[name]
            for name, value in msgspec.structs.asdict(self.client()).items()
            if value is not None
        )

    def without(self, properties: Collection[str]) -> TuningSpec:
        """Returns the settings without those that set one of these properties."""
        mine = {field.removesuffix("_ms") for field, name in TUNED.items() if name in properties}
        return self.model_copy(update=dict.fromkeys(mine))

    def client(self) -> Tuning:
        """The settings for librdkafka."""
        return Tuning(
            rack=self.rack,
            fetch_min_bytes=self.fetch_min_bytes,
            fetch_max_bytes=self.fetch_max_bytes,
            fetch_partition_bytes=self.fetch_partition_bytes,
            fetch_wait_ms=_milliseconds(self.fetch_wait),
            queue_bytes=self.queue_bytes,
            queue_messages=self.queue_messages,
            request_timeout_ms=_milliseconds(self.request_timeout),
        )

    def reader(self) -> ReaderTuning:
        """The settings for the reader."""
        found = ReaderTuning()
        if self.batch_messages is not None:
            found["rows_max"] = self.batch_messages
        if self.batch_bytes is not None:
            found["bytes_max"] = self.batch_bytes
        if self.stall_timeout is not None:
            found["stall_seconds"] = self.stall_timeout.total_seconds()
        return found


def _milliseconds(value: timedelta | None) -> int | None:
    return None if value is None else value // timedelta(milliseconds=1)


class ClusterSpec(Section):
    """A cluster's address, client properties, tuning and schema registry.

    The properties are those of librdkafka in the allow-list of
    `ingest.kafka.properties`.
    """

    bootstrap_servers: Servers = Field(description="The cluster's first addresses.")
    client: ClientProperties = Field(
        default_factory=dict,
        repr=False,
        description="Properties of librdkafka, out of an allow-list: security and connections.",
    )
    tuning: TuningSpec = Field(
        default=TuningSpec(), description="How much is fetched, held and waited for."
    )
    registry: RegistrySpec | None = Field(
        default=None,
        description="The schema registry that has the schemas of the cluster's messages.",
    )

    def under(self, client: ClientProperties, tuning: TuningSpec) -> Self:
        """Returns the cluster with a pipeline's own settings over it, one by one.

        Each may be set in either of two ways, as `client` or as `tuning`.
        """
        kept = {
            name: value for name, value in self.client.items() if name not in tuning.properties()
        }
        return self.model_copy(
            update={
                "client": {**kept, **client},
                "tuning": tuning.over(self.tuning.without(client)),
            }
        )
