"""`peek` and `try`: messages in the topics, and their rows. Imported only when a command runs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.peek import Messages, documents, peek, printable, write_messages
from windrow.ingest.admin.try_steps import Step, messages_of_lines, trace_steps
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError, format_count
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
"""The default number of messages that are printed. A file gets all messages."""

ROWS = 10
"""The default number of messages whose rows are shown."""


class Peeked(msgspec.Struct):
    """The document of `peek`.

    Attributes:
        pipeline: the id of the pipeline.
        messages: the messages in the form of `ingest.admin.peek.documents`.
        has_more: whether there are more than the limit.
    """

    pipeline: str
    messages: list[dict[str, Any]]
    has_more: bool = msgspec.field(name="left_out")


class PeekedFile(msgspec.Struct):
    """The document of `peek --out`.

    Attributes:
        pipeline: the id of the pipeline.
        file: the path of the file.
        messages: the number of messages in the file.
    """

    pipeline: str
    file: str
    messages: int


class Shaped(msgspec.Struct):
    """The document of `peek --rows` and of `try`.

    Attributes:
        pipeline: the id of the pipeline.
        steps: the result of each step.
        has_more: whether there are more messages than the limit.
    """

    pipeline: str
    steps: list[Step]
    has_more: bool = msgspec.field(name="left_out")


def try_lines(output: Output, path: Path, file: Path, limit: int | None) -> None:
    """Shows the rows that the lines of a file become, as values of messages. No broker is asked."""
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
    _shape(output, spec, messages_of_lines(values, topics[0] if topics else "topic"), limit)


def _shape(output: Output, spec: PipelineSpec, messages: pa.RecordBatch, limit: int) -> None:
    """Shows the rows of messages up to the limit.

    One more message than the limit shows that there are more.
    """
    has_more = messages.num_rows > limit
    steps = trace_steps(assemble.assemble(spec), messages.slice(0, limit))
    output.show(
        Shaped(spec.id, steps, has_more),
        *(part for step in steps for part in render.step_tables(step)),
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

    Neither table nor ledger is used.
    """
    if rows and out is not None:
        raise SpecError(
            "--rows shows rows, and --out writes messages",
            "spec",
            "Leave one of them out: with --json the rows are a document.",
        )
    spec = _at_isolation(load_spec(path), isolation)
    source = Source(narrow_selection(spec.source.selection(), topic))
    names = spec.source.topic_names() if topic is None else (topic,)
    begin, end = parse_initializer(start, names), parse_initializer(stop, names)
    broker, reader = assemble.connect(spec)
    if out is not None:
        count = write_messages(peek(broker, reader, source, begin, end, limit), out)
        output.show(
            PeekedFile(spec.id, str(out), count),
            Text(f"{out} holds {format_count(count, 'message')}."),
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
    """Prints messages up to the limit. One more message is read to know whether there are more."""
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


def narrow_selection(selection: Selection, topic: str | None) -> Selection:
    """Returns the part of a selection that belongs to a topic; all of it without a topic."""
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
