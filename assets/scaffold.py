"""What `dg scaffold defs windrow.dagster.KafkaTable NAME` writes: a pipeline's files,
as `windrow infer` or `windrow init` would.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import click
import dagster as dg
from pydantic import BaseModel, Field

from windrow.ingest.assemble import connect
from windrow.ingest.cli.infer_command import SAMPLE
from windrow.ingest.errors import SpecError, WindrowError
from windrow.ingest.infer.begin import PLACEHOLDER, Asked, infer, template
from windrow.ingest.infer.hints import Hints
from windrow.ingest.infer.spec_text import DEFAULT_BOOTSTRAP, Address


class NewPipeline(BaseModel):
    """What a new pipeline is begun with; each is an option of `dg scaffold defs`."""

    topic: str | None = Field(
        default=None,
        description="The topic, whose messages tell format and columns. Left out: a template.",
    )
    bootstrap: str | None = Field(
        default=None, description=f"The cluster, HOST:PORT. Left out: {DEFAULT_BOOTSTRAP}."
    )
    cluster: str | None = Field(
        default=None, description="In its place, the cluster's name in a windrow.yaml."
    )


class PipelineScaffolder(dg.Scaffolder[NewPipeline]):
    """Writes defs.yaml and schema.py, commented: of a topic that is named as its newest
    messages are, else a template.
    """

    @classmethod
    def get_scaffold_params(cls) -> type[NewPipeline]:
        """The options."""
        return NewPipeline

    def scaffold(self, request: dg.ScaffoldRequest[NewPipeline]) -> None:
        """Write both files into the component's folder, whose name is the pipeline's id; overwrites nothing.

        Raises:
            ClickException: what `ingest.infer.begin` refuses, in its words, which dg
                shows without a stack trace.
        """  # noqa: E501
        try:
            self._begin(request)
        except WindrowError as error:
            with suppress(OSError):
                # dg made it, and takes an empty one for a component that is there
                request.target_path.rmdir()
            raise click.ClickException(str(error)) from None

    def _begin(self, request: dg.ScaffoldRequest[NewPipeline]) -> None:
        if request.scaffold_format != "yaml":
            raise SpecError("A pipeline is a YAML file", "spec", "Leave --format out.")
        begin, folder = request.params, request.target_path
        address = Address(begin.bootstrap or DEFAULT_BOOTSTRAP, begin.cluster)
        asked, now = Asked(begin.topic or PLACEHOLDER, address, folder.name), datetime.now(UTC)
        if begin.topic is None:
            template(folder, asked, now)
        else:
            infer(folder, asked, Hints(), SAMPLE, connect, now)
