"""`init`, `infer`, `infer --check` and `infer --update`: a pipeline's files.

Imported only when a command runs.
"""

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
from windrow.ingest.config.source import is_pattern
from windrow.ingest.errors import RefusedError, SpecError, format_count
from windrow.ingest.infer.many_topics import InferredTopics, infer_topics
from windrow.ingest.infer.model_update import ModelUpdate, change_model
from windrow.ingest.infer.new_pipeline import DELAY, Begun, infer, template
from windrow.ingest.infer.request import PipelineRequest
from windrow.ingest.infer.schema_drift import check, find_model_changes, names_schemas
from windrow.ingest.model.boundary import instant
from windrow.ingest.model.grid import BATCH, label_after
from windrow.ingest.model.source import Selection
from windrow.ingest.ports.schema_registry import SchemaRegistry
from windrow.ingest.registry.settings import registry_at
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.schema.user_code import ModelReference


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

    Of a pattern's topics it is `InferredTopics`.

    It also prints how many messages fit, and the next commands.
    """
    output.say(f"Asking {request.cluster or request.bootstrap} for messages of {request.topic}")
    if is_pattern(request.topic):
        topics = infer_topics(folder, request, max_messages, assemble.connect, datetime.now(UTC))
        lines = [*topics.describe(), *(_next_of_topics(topics) if topics.fit else ())]
        output.show(topics, *map(Text, lines))
        output.exit_code = 0 if topics.fit else RefusedError.exit_code
        return
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


def _next_of_topics(topics: InferredTopics) -> list[str]:
    """Returns the next commands for all topics, whose first windows may differ."""
    spec = shlex.quote(topics.spec)
    return (
        ["Next, micro-batches:", f"  windrow plan {spec}", f"  windrow run {spec} --drain"]
        if all(inferred.grid == BATCH for inferred in topics.topics.values())
        else [
            "Next, the closed windows of the newest two days:",
            f"  windrow due {spec}",
            f"  windrow run {spec} --due",
        ]
    )


def check_topics(
    output: Output, path: Path, topic: str | None, registry: str | None, max_messages: int
) -> None:
    """Compares the newest messages and schemas with a pipeline's model.

    The document is `DriftReport`.
    """
    pipeline, selection, schema_registry = _open_pipeline(path, topic, registry)
    checked = check(pipeline, selection, schema_registry, max_messages)
    fitting = "an unknown number" if checked.fitting is None else f"{checked.fitting:,}"
    sampled = format_count(checked.sampled, "sampled message")
    summary = f"Of {sampled} {fitting} would fit. Nothing was written."
    output.show(checked, *map(render.finding_line, checked.findings), Text(summary))
    output.exit_code = checked.exit_code


def _open_pipeline(
    path: Path, topic: str | None, registry: str | None
) -> tuple[Pipeline, Selection, SchemaRegistry | None]:
    """Returns a pipeline, its topics, or only the named one, and the registry of their schemas."""
    spec = load_spec(path)
    if registry is not None and not names_schemas(spec.decode):
        raise SpecError(
            "--registry has no effect: no format of this pipeline has schemas in a registry",
            "spec",
            "Leave it out.",
        )
    schema_registry = spec.stated_registry if registry is None else registry_at(registry)
    selection = narrow_selection(spec.source.selection(), topic)
    return assemble.assemble_to_look(spec), selection, schema_registry


def update_model(
    output: Output,
    path: Path,
    topic: str | None,
    registry: str | None,
    max_messages: int,
    *,
    yes: bool,
) -> None:
    """Shows the changes by which a model takes newer messages, and with `yes` writes them.

    The document is `ModelUpdate`.
    """
    pipeline, selection, schema_registry = _open_pipeline(path, topic, registry)
    changes = find_model_changes(pipeline, selection, schema_registry, max_messages)
    spec = pipeline.spec
    if spec.decode.schema_ is None:
        raise SpecError("The pipeline has no schema of its own", "spec", "There is none to change.")
    update = change_model(ModelReference(spec.decode.schema_, spec.folder), changes)
    written = yes and bool(update.diff)
    if written:
        update.write()
    lines = [
        *([update.diff.rstrip()] if update.diff else ["Nothing has to be added to the schema."]),
        *(f"by hand   {change}" for change in update.by_hand),
    ]
    if update.diff:
        lines.append(
            f"Wrote {update.path}. The table changes with the next window."
            if written
            else "Nothing was written; add --yes to change the schema so."
        )
    shown = ModelUpdate(
        spec.id, str(update.path), tuple(map(str, changes)), update.by_hand, update.diff, written
    )
    output.show(shown, *map(Text, lines))
