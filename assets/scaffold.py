"""`dg scaffold defs windrow.dagster.KafkaTable NAME`: writes a pipeline's files.

As `windrow infer` does if a topic is named, else as `windrow init` does.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import click
import dagster as dg
from pydantic import BaseModel, Field

from windrow.ingest.assemble import connect
from windrow.ingest.cli.infer import summary
from windrow.ingest.cli.infer_arguments import SAMPLE
from windrow.ingest.errors import SpecError, WindrowError
from windrow.ingest.infer.new_pipeline import PLACEHOLDER, infer, template
from windrow.ingest.infer.request import DEFAULT_BOOTSTRAP, PipelineRequest


class NewPipeline(BaseModel):
    """The options of `dg scaffold defs`."""

    topic: str | None = Field(
        default=None,
        description=(
            "The topic; format and columns are inferred from its messages. Left out: a template."
        ),
    )
    bootstrap: str | None = Field(
        default=None, description=f"The cluster, HOST:PORT. Left out: {DEFAULT_BOOTSTRAP}."
    )
    cluster: str | None = Field(
        default=None, description="In its place, the cluster's name in a windrow.yaml."
    )


class PipelineScaffolder(dg.Scaffolder[NewPipeline]):
    """Writes defs.yaml and schema.py: inferred from a topic if one is named, else a template."""

    @classmethod
    def get_scaffold_params(cls) -> type[NewPipeline]:
        """The options."""
        return NewPipeline

    def scaffold(self, request: dg.ScaffoldRequest[NewPipeline]) -> None:
        """Writes both files into the component's folder, whose name is the pipeline's id.

        Raises:
            ClickException: `ingest.infer.new_pipeline` refuses; dg shows the message without a
                stack trace.
        """
        try:
            self._begin(request)
        except WindrowError as error:
            with suppress(OSError):
                # dg made the folder, and would take an empty one for a component
                request.target_path.rmdir()
            raise click.ClickException(str(error)) from None

    def _begin(self, request: dg.ScaffoldRequest[NewPipeline]) -> None:
        if request.scaffold_format != "yaml":
            raise SpecError("A pipeline is a YAML file", "spec", "Leave --format out.")
        options, folder, now = request.params, request.target_path, datetime.now(UTC)
        asked = PipelineRequest(
            options.topic or PLACEHOLDER,
            options.bootstrap or DEFAULT_BOOTSTRAP,
            options.cluster,
            id=folder.name,
        )
        if options.topic is None:
            template(folder, asked, now)
        else:
            inferred = infer(folder, asked, SAMPLE, connect, now)
            click.echo("\n".join(summary(inferred, asked.topic)))
