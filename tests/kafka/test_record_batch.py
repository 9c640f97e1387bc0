"""Record batches: what Kafka's own form reads in them, and the partitions that Java's
clients give keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import default_records
from kafka.record.memory_records import MemoryRecords

from tests.sinks.kafka.test_partitions import java_partition
from windrow.ingest.kafka.record_batch import Batching, Messages, Producer, by_key, crc32c

octets = st.none() | st.binary(max_size=40) | st.integers(0, 9000).map(lambda n: b"long" * n)
message = st.tuples(octets, octets, octets, st.integers(0, 1 << 42))


def read(batch: memoryview, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records as kafka-python reads them; what it has no library for, Arrow's LZ4 unpacks."""
    monkeypatch.setattr(default_records.DefaultRecordBatch, "_assert_has_codec", lambda *_: None)
    monkeypatch.setattr(default_records, "lz4_decode", lambda octets: unpacked(bytes(octets)))
    records = MemoryRecords(bytes(batch))
    found = []
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        assert (one.producer_id, one.producer_epoch, one.is_transactional) == (77, 3, True)
        found.append((one.base_sequence, [(r.timestamp, r.key, r.value, r.headers) for r in one]))
    return found


def unpacked(frame: bytes) -> bytes:
    """What is in an LZ4 frame."""
    with pa.input_stream(pa.BufferReader(frame), compression="lz4") as stream:
        return bytes(stream.read())


@given(
    st.lists(message, min_size=1, max_size=30),
    st.integers(1, 40_000),
    st.integers(1, 40_000),
    st.randoms(use_true_random=False),
)
def test_a_batch_is_read_back(written: list[Any], most: int, plain: int, random: Any) -> None:
    """Keys, values, headers and times to the byte, null and empty apart, in the order
    that was asked for, in batches that follow on.
    """
    values, keys, headers, times = (list(column) for column in zip(*written, strict=True))
    columns = [pa.array([None, *column], pa.binary())[1:] for column in (values, keys, headers)]
    rows = np.array(random.sample(range(len(written)), random.randint(1, len(written))))
    made = Messages(
        columns[0],
        columns[1],
        [("h", columns[2])],
        [("_window", b"w"), ("", b"")],
        np.array(times, np.int64),
    )
    sequence, found = 5, list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        for batch in Batching(most, plain).batches(made, rows):
            assert len(batch.octets) <= most or batch.records == 1
            held = rows[len(found) :][: batch.records].tolist()
            assert (
                batch.records == 1
                or sum(len(column[n] or b"") for column in (values, keys, headers) for n in held)
                <= plain
            )
            for begins, records in read(batch.sealed(Producer(77, 3), sequence), patch):
                assert begins == sequence
                found += records
            sequence += batch.records
    wanted = [
        (times[n], keys[n], values[n], [("h", headers[n]), ("_window", b"w"), ("", b"")])
        for n in rows.tolist()
    ]
    assert found == wanted


def test_a_batch_is_as_large_as_a_topic_takes() -> None:
    """What can be compressed comes in few batches, what can't in more, none of which is
    too large; also where one follows the other.
    """
    noise, most = np.random.default_rng(1), 10_000
    values = [
        *[b"long" * 50] * 2000,
        *(noise.bytes(200) for _ in range(500)),
        *[b"long" * 50] * 2000,
    ]
    made = Messages(
        pa.array(values, pa.binary()), pa.nulls(4500, pa.binary()), [], [], np.zeros(4500, np.int64)
    )
    batches = list(Batching(most).batches(made, np.arange(4500)))
    assert sum(batch.records for batch in batches) == 4500
    assert all(len(batch.octets) <= most for batch in batches)
    assert max(batch.records for batch in batches) > 500
    assert len(batches) < 500 * 200 / most * 3


def test_a_message_larger_than_a_block_of_lz4(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that takes more than all that fits is alone in its batch, in as many
    blocks as it needs.
    """
    noise = np.random.default_rng(1).bytes(9 << 20)
    values = pa.array([b"a", noise, b"b"], pa.binary())
    made = Messages(values, pa.nulls(3, pa.binary()), [], [], np.zeros(3, np.int64))
    found = [
        read(batch.sealed(Producer(77, 3), 0), monkeypatch)
        for batch in Batching(1000).batches(made, np.arange(3))
    ]
    assert [[record[2] for record in records] for [(_, records)] in found] == [
        [b"a"],
        [noise],
        [b"b"],
    ]


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1), st.integers(1, 1000))
def test_keys_go_where_java_puts_them(keys: list[bytes | None], count: int) -> None:
    """Those that are missing go where they are told to."""
    wanted = [7 if key is None else java_partition(key, count) for key in keys]
    assert by_key(pa.array([None, *keys], pa.binary())[1:], count, 7).tolist() == wanted


def test_the_checksum_is_castagnolis() -> None:
    """By the check value of CRC-32C, and by those of zeros and ones in RFC 3720."""
    assert [crc32c(memoryview(text)) for text in (b"123456789", bytes(32), b"\xff" * 32)] == [
        0xE3069283,
        0x8A9136AA,
        0x62A8AB43,
    ]
