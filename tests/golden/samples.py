"""Sample values without empty fields and default values, so each field is in its form."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.ledger_records import Pause, RefusedWindow
from windrow.ingest.model.lookup import LookedUp, Pin
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import (
    Changed,
    Checksums,
    Counts,
    DeadReplay,
    Merged,
    Receipt,
    Routed,
    SplitCounts,
    Tombstones,
)
from windrow.ingest.model.source import (
    AtLabel,
    AtTime,
    Earliest,
    FrozenStop,
    Given,
    GroupOffsets,
    Initializer,
    Latest,
)
from windrow.ingest.model.writer_schema import WriterSchema

START = datetime(2026, 1, 2, tzinfo=UTC)
END = START + timedelta(hours=1)
SUMS = [f"{number:x}" * 16 for number in range(16)]
"""Different checksums."""

OWNER = TableOwner("orders", "ledger-1", "hourly")
WINDOW = Window("orders", START, END)
TOPIC = TopicSeen("shop.orders", "topic-id-1", 1)
BEGIN = Boundary(START, "cluster-1", (TOPIC,), (Mark("shop.orders", 0, 10, "settled", 3),))
STOP = Boundary(
    END,
    "cluster-1",
    (TOPIC,),
    (Mark("shop.orders", 0, 20, "end", 4),),
    (Mark("shop.orders", 0, 11, "position", 3),),
)
PLAN = Plan(WINDOW, BEGIN, STOP, (Split("shop.orders", 0, 10, 20, 3, 4),), "sqlite:orders#orders")
BATCH = Plan(
    Window("orders", 7, 8),
    msgspec.structs.replace(BEGIN, label=7),
    msgspec.structs.replace(STOP, label=8),
    PLAN.splits,
    PLAN.sink,
)
"""The plan of a micro-batch."""

POSITIONS: list[Initializer] = [
    AtLabel(),
    Earliest(),
    Latest(),
    AtTime(START, "fail"),
    GroupOffsets("readers", "earliest"),
    Given(((TopicPartition("shop.orders", 0), 20),), GroupOffsets("readers", "latest")),
]
FROZEN_STOP = FrozenStop(GroupOffsets("readers", "earliest"), STOP)
PIN = Pin("rates", "delta:/lake/rates", "17")
LOOKED_UP = LookedUp("rates", 3, 6, 1, 2, START, END, SUMS[9])
SPLIT_COUNTS = SplitCounts(
    "shop.orders",
    0,
    *(10, 20, 20, 9, 180, 5, 1, 2, 6, 1, 1, 6, 1, 2, 3, 4),
    reasons=(("truncated", 1),),
    first_dead=((13, "truncated"),),
    late=1,
    early=2,
    late_by=(("2026-01-01T23:00:00Z", 1),),
    min_timestamp=START,
    max_timestamp=END,
    diverged=True,
    checksums=Checksums(SUMS[1], SUMS[2]),
    schemas=(("5", SUMS[3]),),
    lookups=(LOOKED_UP,),
    ignored=2,
    ignored_fields=(("$.note", 2),),
    late_stamps=3,
    latest_event=START,
)
CHANGED = Changed(1, 2, SUMS[4], SUMS[5])
RECEIPT = Receipt(
    PLAN,
    PLAN.digest,
    1,
    "attempt-2",
    "request-3",
    "ledger-1",
    "hourly",
    Counts(*range(1, 16)),
    (SPLIT_COUNTS,),
    (("id", "string"), ("amount", "int64")),
    "0.1.0",
    END,
    1.5,
    warnings=("a warning",),
    partial=("a loss",),
    merged=Merged(3, 4, SUMS[6], SUMS[7], Tombstones("gone.parquet", "ab" * 32, 5), CHANGED, 6, 7),
    dead_replay=DeadReplay("attempt-1", "attempt-0", 8, 2, (PIN,)),
    routed=(Routed("refunds", 9, SUMS[8]),),
    passed_over=10,
    pins=(PIN,),
    stop=FROZEN_STOP,
    event_time="created_at",
    files=4,
    expired_at=END,
)
REFUSED = RefusedWindow(WINDOW, PLAN.digest, "schema-digest", "0.1.0", END)
PAUSE = Pause(3, paused=True, who="ann", reason="an upgrade", recorded_at=END)
WRITER_SCHEMA = WriterSchema("5", "AVRO", '"string"', (("shop.Money", '"long"'),))


def default_paths(value: object, path: str = "") -> Iterator[str]:
    """Yields the paths of fields that have their default value, and of empty lists."""
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            field_value, field_path = getattr(value, field.name), f"{path}.{field.name}"
            if field_value == field.default and field.name not in {"version", "form"}:
                yield field_path
            yield from default_paths(field_value, field_path)
    elif isinstance(value, tuple | list):
        if not value:
            yield path
        for number, member in enumerate(value):
            yield from default_paths(member, f"{path}[{number}]")
