"""`init` and `infer`: the two files of a new pipeline. Loaded only when the command runs."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from windrow.ingest.assemble import connect
from windrow.ingest.cli.output import Output
from windrow.ingest.infer.begin import DELAY, Begun, Inferred, infer, template
from windrow.ingest.infer.request import PipelineRequest
from windrow.ingest.model.label import instant
from windrow.ingest.source.enumerator.grid import BATCH, after


def begin_pipeline(output: Output, folder: Path, asked: PipelineRequest) -> None:
    """Write a template, and say what to type next; its document is `Begun`."""
    begun = template(folder, asked, datetime.now(UTC))
    example = (
        f"Wrote {begun.spec} and {begun.schema}. The columns are an example: change both files"
        " before the first run."
    )
    output.show(begun, *map(Text, [example, *_next(begun)]))


def infer_pipeline(output: Output, folder: Path, asked: PipelineRequest, most: int) -> None:
    """Write the files as the topic tells them, say how well they fit, and what to type
    next; its document is `Inferred`.
    """
    output.say(f"Asking {asked.cluster or asked.bootstrap} for messages of {asked.topic}")
    inferred = infer(folder, asked, most, connect, datetime.now(UTC))
    output.show(inferred, *map(Text, [*_told(inferred, asked.topic), *_next(inferred)]))


def _told(inferred: Inferred, topic: str) -> list[str]:
    columns = "1 column" if inferred.columns == 1 else f"{inferred.columns} columns"
    lines = [
        f"Wrote {inferred.spec} and {inferred.schema}.",
        f"{columns} of format {inferred.format}, {inferred.told_by}.",
        f"Of {inferred.sampled:,} sampled messages of {topic} {inferred.fitting:,} fit.",
    ]
    if inferred.refused:
        refused = ", ".join(f"{n:,}: {why}" for why, n in inferred.refused)
        lines.append(f"Refused would be {refused}; limits.max_dead_ratio says how many may be.")
    return [*lines, *(f"Note: {note}." for note in inferred.notes)]


def _next(begun: Begun) -> list[str]:
    spec = shlex.quote(begun.spec)
    if begun.grid == BATCH:
        return ["Next, micro-batches:", f"  windrow plan {spec}", f"  windrow run {spec} --drain"]
    window = "W" if begun.start is None else instant(begun.start)
    lines = [f"  windrow plan {spec} --window {window}", f"  windrow run {spec} --window {window}"]
    if begun.window is None and begun.start is not None:
        return [
            (
                f"Next, from {instant(after(begun.grid, begun.start) + DELAY)} on, when the first"
                " window is closed:"
            ),
            *lines,
        ]
    return ["Next:", *lines]
