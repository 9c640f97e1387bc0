"""The `dead_letters` section: a topic for dead letters, in addition to their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import (
    ClientProperties,
    ClusterName,
    LeftOut,
    Section,
    Servers,
    Values,
    WrittenTopicName,
)
from windrow.ingest.sinks.kind import cluster_conflicts


class DeadLettersSpec(Section):
    """A topic for dead letters, in addition to their table.

    It is on the source's cluster, or on another one.
    """

    topic: Annotated[WrittenTopicName, Values("a name")] = Field(
        description=(
            "Committed windows' dead letters are written there too, each at least once, with Kafka"
            " Connect's headers. It must be there."
        )
    )
    cluster: Annotated[ClusterName | None, LeftOut("the source's cluster")] = Field(
        default=None,
        description=(
            "The topic's cluster, by its name in a `windrow.yaml`; or it is given here, by"
            " `bootstrap_servers`."
        ),
    )
    bootstrap_servers: Annotated[Servers | None, LeftOut("the source's cluster")] = Field(
        default=None, description="The first addresses of the topic's cluster."
    )
    client: ClientProperties = Field(
        default_factory=dict,
        repr=False,
        description="Properties of librdkafka for it, as under `source.client`.",
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Yields the conflicts of the settings that say which cluster has the topic."""
        yield from cluster_conflicts(written, "topic")
