"""`peek`: messages as they are in the topics. Loaded only when the command runs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.peek import Messages, documents, peek, printable, write_messages
from windrow.ingest.admin.try_steps import Step, of_lines, through_steps
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError, counted
from windrow.ingest.model.source import (
    Isolation,
    Partitions,
    Pattern,
    Selection,
    Source,
    Topics,
    parse_initializer,
    selection_text,
)
from windrow.ingest.schema.messages import MESSAGES

LIMIT = 20
"""Default number of messages that are printed; to a file all are written."""

ROWS = 10
"""Default number of messages whose rows are shown."""


class Peeked(msgspec.Struct):
    """The document of `peek`. `has_more`: whether there are more than the limit.

    `messages`: as `ingest.admin.peek.documents` makes them.
    """

    pipeline: str
    messages: list[dict[str, Any]]
    has_more: bool = msgspec.field(name="left_out")


class PeekedFile(msgspec.Struct):
    """The document of `peek --out`. `messages`: the number of messages in the file."""

    pipeline: str
    file: str
    messages: int


class Shaped(msgspec.Struct):
    """The document of `peek --rows` and of `try`: what each step gives.

    `has_more`: whether there are more messages than the limit.
    """

    pipeline: str
    steps: list[Step]
    has_more: bool = msgspec.field(name="left_out")


def try_lines(output: Output, path: Path, file: Path, limit: int | None) -> None:
    """Shows what becomes of the lines of a file, as values of messages; asks no broker."""
    spec, limit = load_spec(path), limit or ROWS
    try:
        with file.open("rb") as lines:
            values = [line.rstrip(b"\r\n") for line in islice(lines, limit + 1)]
    except OSError as error:
        message, advice = (
            f"{file} can't be read: {error.strerror}",
            "Name a file with a value a line.",
        )
        raise SpecError(message, "spec", advice) from None
    topics = spec.source.topic_names()
    _shape(output, spec, of_lines(values, topics[0] if topics else "topic"), limit)


def _shape(output: Output, spec: PipelineSpec, messages: pa.RecordBatch, limit: int) -> None:
    """Shows the rows of messages up to the limit; one more says that there are more."""
    has_more = messages.num_rows > limit
    steps = through_steps(assemble.assemble(spec), messages.slice(0, limit))
    output.show(
        Shaped(spec.id, steps, has_more),
        *(part for step in steps for part in render.step(step)),
        *render.not_shown(more=has_more),
    )


def peek_messages(
    output: Output,
    path: Path,
    start: str,
    stop: str,
    limit: int | None,
    topic: str | None,
    isolation: Isolation | None,
    out: Path | None,
    *,
    rows: bool,
) -> None:
    """Shows messages between two positions, or writes them to a file.

    Uses neither table nor ledger.
    """
    if rows and out is not None:
        raise SpecError(
            "--rows shows rows, and --out writes messages",
            "spec",
            "Leave one of them out: with --json the rows are a document.",
        )
    spec = _at_isolation(load_spec(path), isolation)
    source = Source(narrowed(spec.source.selection(), topic))
    names = spec.source.topic_names() if topic is None else (topic,)
    begin, end = parse_initializer(start, names), parse_initializer(stop, names)
    broker, reader = assemble.connect(spec)
    if out is not None:
        count = write_messages(peek(broker, reader, source, begin, end, limit), out)
        output.show(
            PeekedFile(spec.id, str(out), count), Text(f"{out} holds {counted(count, 'message')}.")
        )
        return
    if rows:
        batches: list[pa.RecordBatch] = []
        limit = limit or ROWS
        peek(broker, reader, source, begin, end, limit + 1)(batches.append)
        none = pa.RecordBatch.from_pylist([], schema=MESSAGES)
        _shape(output, spec, pa.concat_batches([none, *batches]), limit)
        return
    limit = limit or LIMIT
    _print(output, spec.id, peek(broker, reader, source, begin, end, limit + 1), limit)


def _print(output: Output, pipeline_id: str, read: Messages, limit: int) -> None:
    """Prints messages up to the limit; one more is read, to know whether there are more."""
    batches: list[pa.RecordBatch] = []
    read(batches.append)
    messages = [document for batch in batches for document in documents(batch)][:limit]
    has_more = sum(batch.num_rows for batch in batches) > limit
    rows = [row for batch in batches for row in printable(batch)][:limit]
    table = (
        render.message_table(rows)
        if rows
        else Text("There are no messages between these positions.")
    )
    output.show(
        Peeked(pipeline_id, messages, has_more=has_more), table, *render.not_shown(more=has_more)
    )


def _at_isolation(spec: PipelineSpec, isolation: Isolation | None) -> PipelineSpec:
    if isolation is None:
        return spec
    return spec.model_copy(
        update={"source": spec.source.model_copy(update={"isolation": isolation})}
    )


def narrowed(selection: Selection, topic: str | None) -> Selection:
    """The part of a selection that is of one topic; all of it without a topic."""
    if topic is None:
        return selection
    if isinstance(selection, Partitions):
        tps = tuple(tp for tp in selection.tps if tp.topic == topic)
        if tps:
            return Partitions(tps)
    elif selection.matches(topic) if isinstance(selection, Pattern) else topic in selection.names:
        return Topics((topic,))
    raise SpecError(
        f"Topic {topic} is not among those that the pipeline reads: {selection_text(selection)}",
        "spec",
        "Name one of these.",
    )
