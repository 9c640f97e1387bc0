"""The request for a new pipeline, by `windrow infer`, `windrow init` or `dg scaffold`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

SAMPLED_MESSAGES = 500
"""Default number of messages that are read of each topic-partition."""

SampledFormat = Literal[
    "json",
    "json-schema-confluent",
    "csv",
    "string",
    "raw",
    "debezium-json",
    "canal-json",
    "maxwell-json",
]
"""The formats whose columns can be inferred from sampled messages, without a schema."""


class PipelineRequest(msgspec.Struct, frozen=True):
    """The topic, its cluster, and hints; None: inferred from the topic's messages.

    `cluster`: its name in a windrow.yaml, in place of `bootstrap`; `registry`: URL of a
    schema registry; `columns`: names of CSV's fields; `table`: of change data, as
    `database.table`.
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
        """The cluster and the registry as settings of a spec's source."""
        reached: dict[str, Any] = (
            {"bootstrap_servers": self.bootstrap}
            if self.cluster is None
            else {"cluster": self.cluster}
        )
        return reached if self.registry is None else {**reached, "registry": {"url": self.registry}}
