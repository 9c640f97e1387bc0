"""Shows a few messages at each step on the way to the table.

They are decoded and transformed as a run would do it, and nothing is written. A `spark`
step and the steps after it aren't run, because a `spark` step takes a whole window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite, isnan
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded, checked_verdict
from windrow.ingest.ports.transform import Transform
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.writer_schemas import decoder_for
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.transform.chain import Chain
from windrow.ingest.transform.validate import Validate


class RemovedMessage(msgspec.Struct, frozen=True):
    """A message that has no row after a step.

    Attributes:
        message: the position of the message in the log.
        reason: why it has no row.
        detail: why it is a dead letter, if it is.
    """

    message: str
    reason: str = msgspec.field(name="why")
    detail: str | None = None


class Step(msgspec.Struct, frozen=True):
    """The result of a step.

    Attributes:
        name: the step's name.
        columns: the columns of its rows.
        messages: for each row, the position of its message in the log.
        rows: the rows.
        removed: the messages that have no row after this step.
    """

    name: str
    columns: tuple[str, ...]
    messages: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    removed: tuple[RemovedMessage, ...] = msgspec.field(name="left_out")


def trace_steps(pipeline: Pipeline, messages: pa.RecordBatch) -> list[Step]:
    """Takes messages (`MESSAGES`) through decoding and each transform.

    Raises:
        SpecError: the schema or a step can't be used.
        UnreachableError: the schema registry doesn't answer.
    """
    for transform in pipeline.transforms():
        transform.open()  # checks also the steps after a `spark` step
    decoder = decoder_for(pipeline, sorted(set(messages["topic"].to_pylist())))
    decoded = checked_verdict(decoder, decoder.open()(messages))
    places = [
        f"{topic}[{partition}]@{offset}"
        for topic, partition, offset in zip(
            *(messages[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True
        )
    ]
    steps, indices_before = [], np.arange(messages.num_rows)
    steps.append(_step("decode", indices_before, decoded, places))
    for name, transform in _name_transforms(pipeline.transform()):
        indices_before = decoded.row_index.to_numpy()
        alone = Chain((transform,), passes_rest=pipeline.spec.decode.keeps_unknown)
        decoded = alone.open()(decoded, messages)
        steps.append(_step(name, indices_before, decoded, places))
    return steps


def messages_of_lines(lines: Iterable[bytes], topic: str) -> pa.RecordBatch:
    """Makes messages whose values are lines; an empty line is a message without a value."""
    values = [line or None for line in lines]
    columns: dict[str, pa.Array] = {
        "topic": pa.array([topic] * len(values), pa.string()),
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[]] * len(values), MESSAGES.field("headers").type),
    }
    arrays = [
        columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(values), f.type)
        for f in MESSAGES
    ]
    return pa.RecordBatch.from_arrays(arrays, MESSAGES.names)


def _name_transforms(transform: Transform) -> Iterator[tuple[str, Transform]]:
    if isinstance(transform, Chain):
        for inner in transform.transforms:
            yield from _name_transforms(inner)
    elif isinstance(transform, Validate):
        yield f"rules of {transform.model}", transform
    else:
        yield getattr(transform, "setting", type(transform).__name__), transform


def _step(name: str, indices_before: Any, decoded: Decoded, places: list[str]) -> Step:
    """Compares the result of a step with the messages that had rows before it."""
    kept_indices = set(decoded.row_index.to_pylist())
    if decoded.deletes is not None:
        kept_indices |= set(decoded.deletes.index.to_pylist())
    reason_columns = (decoded.dead_stage, decoded.dead_reason, decoded.dead_detail)
    dead = {
        index: RemovedMessage(places[index], f"dead at {stage}: {reason}", detail)
        for index, stage, reason, detail in zip(
            decoded.dead_index.to_pylist(),
            *(column.to_pylist() for column in reason_columns),
            strict=True,
        )
    }
    removed_messages = (
        dead.get(index, RemovedMessage(places[index], "no row"))
        for index in np.unique(indices_before).tolist()
        if index not in kept_indices
    )
    return Step(
        name,
        tuple(decoded.rows.schema.names),
        tuple(places[index] for index in decoded.row_index.to_pylist()),
        tuple(map(_json, decoded.rows.to_pylist())),
        tuple(removed_messages),
    )


def _json(value: Any) -> Any:
    """Converts NaN and infinities, also in lists and structs, to strings.

    JSON has no such numbers.
    """
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _json(part) for name, part in value.items()}
    return type(value)(map(_json, value)) if isinstance(value, list | tuple) else value
