"""A message's time is its row's time.

A row with an impossible time is refused before anything is published.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sinks.kafka.world import encoder_of
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.kafka.encoder import NOW
from windrow.ingest.sinks.kafka.serializers import PlainSerializer
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory
from windrow.ingest.sinks.kit.files.file_stager import RowLayout
from windrow.ingest.testing.contracts.windows import messages, window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = pa.schema([("v", pa.string()), ("at", pa.timestamp("us", "UTC"))])
SPLIT = Split("shop.orders", 1, 30, 34)
LATER = [
    EPOCH + timedelta(milliseconds=1),
    None,
    datetime(2026, 1, 1, tzinfo=UTC),
    EPOCH + timedelta(microseconds=1_999),
]


def rows(times: list[datetime | None]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(["v"] * 4), pa.array(times, ROWS.field("at").type)], schema=ROWS
    )


@pytest.mark.parametrize(
    "early",
    [
        EPOCH,
        EPOCH - timedelta(milliseconds=1),
        EPOCH + timedelta(microseconds=999),
        datetime.min.replace(tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("time", ["message", "at"])
def test_a_time_that_no_message_can_have_is_refused(
    tmp_path: Path, time: str, early: datetime
) -> None:
    """A time of 1970-01-01 or earlier is refused at staging, with the source offset.

    The client takes 0 for "no time", and would write the current time.
    """
    encoder, times = (
        encoder_of(PlainSerializer("string", ("v",)), staging=str(tmp_path), time=time),
        [*LATER[:2], early, early],
    )
    stager = KafkaStagerFactory(RowLayout(ROWS, DEFAULT, "a"), encoder, window(0))(SPLIT)
    read = messages(SPLIT)
    column_index = read.schema.get_field_index("timestamp")
    read = read.set_column(
        column_index,
        read.schema.field(column_index),
        pa.array(times if time == "message" else LATER).cast(
            read.schema.field(column_index).type, safe=False
        ),
    )
    with pytest.raises(RefusedError, match="1970") as refused:
        stager.add(rows(LATER if time == "message" else times), read)
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.orders",
        1,
        32,
    )
    assert "sink.timestamp: published" in refused.value.advice


def test_any_later_time_is_the_message_s() -> None:
    """Times are cut to milliseconds; a row without one gets the time of publishing."""
    encoder = encoder_of(PlainSerializer("string", ("v",)), time="at")
    assert encoder.encode(rows(LATER), messages(SPLIT), window(0))["time"].to_pylist() == [
        1,
        NOW,
        1_767_225_600_000,
        1,
    ]
