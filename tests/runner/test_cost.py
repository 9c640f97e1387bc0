"""Cost of a message in a task, in Python's calls and in allocated bytes.

These counts are the same on every machine and under every load; the benchmark measures time.
Two batches of different sizes give the cost per message, without the cost per batch. The limits
are a quarter above the measured counts: if a change raises a cost on purpose, its author writes
down the new count.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from tests.bench.orders import values
from tests.bench.orders_schema import Order
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.schema.checksum import checksum
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.sinks.delta.stage import DeltaStagerFactory
from windrow.ingest.sinks.kit.files.file_stager import RowLayout
from windrow.ingest.testing.contracts.values import messages_with
from windrow.ingest.transform.validate import Validate

FEW, MANY = 4_096, 16_384
SCHEMA, FOLDER = "orders_schema.py:Order", Path(__file__).parent.parent / "bench"


@dataclass(frozen=True)
class Cost:
    """Cost of a batch.

    Attributes:
        calls: calls of functions.
        arrow: bytes that Arrow allocates.
        peak: maximum of bytes that Python and numpy hold at once.
    """

    calls: float
    arrow: float
    peak: float


LIMITS = {  # bytes per message of Arrow, and the peak of Python's and numpy's; calls per batch
    "decode": Cost(calls=880, arrow=0, peak=172),
    "validate": Cost(calls=1190, arrow=0.125, peak=1.3),  # a bit per message: which floats are NaN
    "checksum": Cost(calls=530, arrow=1.5, peak=30),
    "stage": Cost(calls=1670, arrow=400, peak=30),
}


def steps(folder: Path, messages: pa.RecordBatch) -> dict[str, Callable[[], object]]:
    """Returns the steps that a task does with a batch of messages, each on the result of the
    one before.
    """
    decode, validate = (
        RowDecoder(ModelReference(SCHEMA, FOLDER), JsonEncoding()).open(),
        Validate(ModelReference(SCHEMA, FOLDER)).open(),
    )
    decoded = decode(messages)
    stagers = DeltaStagerFactory(
        str(folder),
        RowLayout(Columns.of(Order).arrow_schema, DEFAULT, "attempt"),
        "20260101T000000Z",
    )

    def stage() -> None:
        stager = stagers(Split("t", 0, 0, messages.num_rows))
        stager.add(decoded.rows, messages)
        stager.finish()

    return {
        "decode": lambda: decode(messages),
        "validate": lambda: validate(decoded, messages),
        "checksum": lambda: checksum(decoded.rows),
        "stage": stage,
    }


def cost_of(step: Callable[[], object]) -> Cost:
    """Returns the cost of a step's second run, because the first run loads and builds what is
    kept.
    """
    step()
    return Cost(_calls(step), _arrow(step), _peak(step))


def _calls(step: Callable[[], object]) -> int:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    old_profiler = sys.getprofile()
    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(old_profiler)
    return calls


def _arrow(step: Callable[[], object]) -> int:
    pool = pa.default_memory_pool()
    allocated_before = pool.total_bytes_allocated()
    step()
    return int(pool.total_bytes_allocated() - allocated_before)


def _peak(step: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("step", LIMITS)
def test_a_message_costs_no_more_than_it_did(step: str, tmp_path: Path) -> None:
    """No function is called per message, and calls and allocations of each step stay within its
    limits.
    """
    orders = values()
    few_costs, many_costs = (
        cost_of(steps(tmp_path, messages_with(orders[:n]))[step]) for n in (FEW, MANY)
    )
    limit, more = LIMITS[step], MANY - FEW
    per_message = Cost(
        (many_costs.calls - few_costs.calls) / more,
        (many_costs.arrow - few_costs.arrow) / more,
        (many_costs.peak - few_costs.peak) / more,
    )
    assert abs(per_message.calls) < 0.001, f"calls per message: {per_message.calls}"
    assert many_costs.calls <= limit.calls, f"calls per batch: {many_costs.calls}"
    assert per_message.arrow <= limit.arrow, f"bytes per message: {per_message}"
    assert per_message.peak <= limit.peak, f"bytes per message: {per_message}"
