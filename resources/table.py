"""A pipeline's table as a Dagster resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from pydantic import Field

from ingest.assemble import make_sink
from ingest.config.document import Document
from ingest.ports.sink import Sink
from ingest.spec.pipeline import PipelineSpec, SinkSpec
from ingest.spec.reading import refusal, validated

if TYPE_CHECKING:
    import pyarrow as pa


class Table(dg.ConfigurableResource[None]):
    """Where rows go, and receipts with them."""

    settings: Mapping[str, Any] = Field(description="As under a spec's sink")
    folder: str = Field(description="What a relative path is relative to")

    @classmethod
    def of(cls, spec: PipelineSpec) -> Self:
        """The resource of a spec's table."""
        return cls(settings=spec.sink.model_dump(mode="json"), folder=str(spec.folder))

    def sink(self, rows: Callable[[], pa.Schema], metadata: Mapping[str, str]) -> Sink:
        """Opens it; nothing is touched yet.

        Args:
            rows: the columns of the rows, without the metadata columns.
            metadata: these, name -> column.

        Raises:
            SpecError: its fields make no table.
        """
        section, wrong = validated(SinkSpec, self.settings)
        if section is None:
            raise refusal("the resource Table", wrong, Document())
        return make_sink(section, Path(self.folder), metadata, rows)
