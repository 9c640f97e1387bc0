"""Request for a new pipeline, from `windrow infer`, `windrow init` or `dg scaffold`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

SAMPLED_MESSAGES = 500
"""Default number of messages that are sampled from each topic-partition."""

SampledFormat = Literal[
    "json",
    "json-schema-confluent",
    "csv",
    "string",
    "raw",
    "debezium-json",
    "debezium-json-schema-confluent",
    "canal-json",
    "maxwell-json",
    "dms-json",
]
"""Formats whose columns can be inferred from sampled messages, without a schema."""


class PipelineRequest(msgspec.Struct, frozen=True):
    """Topic of a new pipeline, its cluster, and hints.

    Attributes:
        topic: the topic, or a pattern of several.
        bootstrap: the bootstrap servers.
        cluster: the cluster's name in a windrow.yaml; None to use `bootstrap`.
        registry: the URL of a schema registry; None if there is none.
        id: the pipeline's id; None to derive it from the name of the topic or the folder.
        grid: the grid of windows; None to choose it by the age of the log.
        format: the format of the values; None to recognise it in the messages.
        columns: the names of CSV's fields.
        table: the table whose change events are read, as `database.table`.
    """

    topic: str
    bootstrap: str = DEFAULT_BOOTSTRAP
    cluster: str | None = None
    registry: str | None = None
    id: str | None = None
    grid: str | None = None
    format: SampledFormat | None = None
    columns: tuple[str, ...] = ()
    table: str | None = None

    @property
    def source(self) -> dict[str, Any]:
        """Settings of a spec's `source` for the topics, the cluster and the registry."""
        from windrow.ingest.config.source import is_pattern  # imported here, as it takes long

        reached: dict[str, Any] = (
            {"bootstrap_servers": self.bootstrap}
            if self.cluster is None
            else {"cluster": self.cluster}
        )
        reached["topic_pattern" if is_pattern(self.topic) else "topic"] = self.topic
        return reached if self.registry is None else {**reached, "registry": {"url": self.registry}}
