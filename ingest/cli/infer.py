"""`init`, `infer` and `infer --check`: a pipeline's files. Imported only when a command runs."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.cli.peek import narrow_selection
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import RefusedError, SpecError, format_count
from windrow.ingest.infer.new_pipeline import DELAY, Begun, infer, template
from windrow.ingest.infer.request import PipelineRequest
from windrow.ingest.infer.schema_drift import check, names_schemas
from windrow.ingest.model.boundary import instant
from windrow.ingest.model.grid import BATCH, label_after
from windrow.ingest.registry.settings import registry_at


def begin_pipeline(output: Output, folder: Path, request: PipelineRequest) -> None:
    """Writes a template, and prints the next commands. The document is `Begun`."""
    begun = template(folder, request, datetime.now(UTC))
    example = (
        f"Wrote {begun.spec} and {begun.schema}. The columns are an example: change both files"
        " before the first run."
    )
    output.show(begun, *map(Text, [example, *_next(begun)]))


def infer_pipeline(
    output: Output, folder: Path, request: PipelineRequest, max_messages: int
) -> None:
    """Writes files that are inferred from a topic. The document is `Inferred`.

    It also prints how many messages fit, and the next commands.
    """
    output.say(f"Asking {request.cluster or request.bootstrap} for messages of {request.topic}")
    inferred = infer(folder, request, max_messages, assemble.connect, datetime.now(UTC))
    lines = [*inferred.describe(request.topic), *(_next(inferred) if inferred.fit else ())]
    output.show(inferred, *map(Text, lines))
    output.exit_code = 0 if inferred.fit else RefusedError.exit_code


def _next(begun: Begun) -> list[str]:
    spec = shlex.quote(begun.spec)
    if begun.grid == BATCH:
        return ["Next, micro-batches:", f"  windrow plan {spec}", f"  windrow run {spec} --drain"]
    window = "W" if begun.start is None else instant(begun.start)
    lines = [f"  windrow plan {spec} --window {window}", f"  windrow run {spec} --window {window}"]
    if begun.window is None and begun.start is not None:
        return [
            (
                f"Next, from {instant(label_after(begun.grid, begun.start) + DELAY)} on, when the"
                " first window is closed:"
            ),
            *lines,
        ]
    return ["Next:", *lines]


def check_topics(
    output: Output, path: Path, topic: str | None, registry: str | None, max_messages: int
) -> None:
    """Compares the newest messages and schemas with a pipeline's model.

    The document is `DriftReport`.
    """
    spec = load_spec(path)
    if registry is not None and not names_schemas(spec.decode):
        raise SpecError(
            "--registry has no effect: no format of this pipeline has schemas in a registry",
            "spec",
            "Leave it out.",
        )
    schema_registry = spec.stated_registry if registry is None else registry_at(registry)
    selection = narrow_selection(spec.source.selection(), topic)
    checked = check(assemble.assemble_to_look(spec), selection, schema_registry, max_messages)
    fitting = "an unknown number" if checked.fitting is None else f"{checked.fitting:,}"
    sampled = format_count(checked.sampled, "sampled message")
    summary = f"Of {sampled} {fitting} would fit. Nothing was written."
    output.show(checked, *map(render.finding_line, checked.findings), Text(summary))
    output.exit_code = checked.exit_code
