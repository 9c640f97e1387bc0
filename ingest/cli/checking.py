"""`infer --check`: what of a pipeline's topics doesn't fit it any more.

Loaded only when the command runs.
"""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from windrow.ingest.assemble import assemble_to_look
from windrow.ingest.cli import render
from windrow.ingest.cli.looking import narrowed
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.infer.schema_drift import check, names_schemas
from windrow.ingest.registry.settings import registry_at


def check_topics(
    output: Output, path: Path, topic: str | None, registry: str | None, most: int
) -> None:
    """The newest messages and schemas against the pipeline's model; its document is
    `DriftReport`.
    """
    spec = load_spec(path)
    if registry is not None and not names_schemas(spec.decode):
        raise SpecError(
            "--registry would not be asked: no format of this pipeline's has schemas of one",
            "spec",
            "Leave it out.",
        )
    asked = spec.stated_registry if registry is None else registry_at(registry)
    checked = check(assemble_to_look(spec), narrowed(spec.source.selection(), topic), asked, most)
    fitting = (
        "it can't be said how many fit" if checked.fitting is None else f"{checked.fitting:,} fit"
    )
    summary = f"Of {checked.sampled:,} sampled messages {fitting}. Nothing was written."
    output.show(checked, *map(render.finding_line, checked.findings), Text(summary))
    output.exit_code = checked.exit_code
