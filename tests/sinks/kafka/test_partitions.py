"""The partition of a message: by the hash of its key as in Java, or by a user's function."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kafka.produce import create_topic
from tests.sinks.kafka.hooks import before_fence
from tests.sinks.kafka.test_publish import ROWS, stage_rows
from tests.sinks.kafka.world import (
    KafkaBoth,
    create_location,
    open_sink,
    origin_of,
    pieces,
    read_committed,
)
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.user_code import FunctionReference
from windrow.ingest.sinks.kafka.encoder import ENCODED
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.partitioners import PARTITION, PartitionFunction
from windrow.ingest.sinks.kafka.serializers import PlainSerializer
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.testing.contracts.windows import ROWS as THINGS
from windrow.ingest.testing.contracts.windows import staged_receipt

BY_LENGTH = """
import pyarrow.compute as pc
def place(keys, rows, partitions):
    return pc.subtract(pc.min_element_wise(pc.binary_length(rows["v"]), partitions), 1)
"""
SPLIT = Split("shop.orders", 3, 40, 44)
OFFSETS = pa.array([40, 41, 42, 43], pa.int64())


def function(folder: Path, text: str, name: str = "place") -> FunctionReference:
    """Writes a user's function to a file, and returns a reference to it."""
    (folder / "where.py").write_text(text)
    return FunctionReference(f"where.py:{name}", folder)


def encoded(topics: list[str | None]) -> pa.RecordBatch:
    """Returns four encoded messages as a stager writes them."""
    n = len(topics)
    columns = [topics, [b"k"] * n, [b"v"] * n, [0] * n, [b"o"] * n]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, ENCODED, strict=True)], schema=ENCODED
    )


def rows(*values: str) -> pa.RecordBatch:
    """Returns the rows of the encoded messages."""
    return pa.record_batch({"v": pa.array(values)})


def test_a_function_sees_the_rows_of_each_topic(tmp_path: Path) -> None:
    """A partition function is called for each target topic, with its rows and number of
    partitions.

    Its result gets to the right messages.
    """
    partition_function = PartitionFunction(
        function(tmp_path, BY_LENGTH), {"one": 2, "two": 9}, None
    )
    partitioned = partition_function.with_partitions(
        encoded(["one", "two", "one", "two"]), rows("a", "bbbb", "cccc", "d"), OFFSETS, SPLIT
    )
    assert partitioned[PARTITION].to_pylist() == [0, 3, 1, 0]
    assert partitioned.drop_columns([PARTITION]) == encoded(["one", "two", "one", "two"])


def test_a_function_travels_to_a_worker_without_its_file(tmp_path: Path) -> None:
    """A partition function is pickled with its file's text, so that all tasks of a run use the
    same text.
    """
    partition_function = PartitionFunction(function(tmp_path, BY_LENGTH), {"one": 5}, "one")
    pickled = pickle.dumps(partition_function)
    (tmp_path / "where.py").unlink()
    partitioned = pickle.loads(pickled).with_partitions(
        encoded([None] * 4), rows("a", "bb", "ccc", "dddd"), OFFSETS, SPLIT
    )
    assert partitioned[PARTITION].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("body", "offset", "says"),
    [
        ("return np.array([0, 1, 2, 0])", 42, "returned partition 2 of out, which has 2"),
        ("return np.array([0, -1, 1, 0])", 41, "returned partition -1 of out"),
        ("return np.array([2**40, 1, 1, 0])", 40, "returned partition 1099511627776 of out"),
        ("return np.array([0, 1])", 40, "returned 2 partitions for 4 rows that go to out"),
        ("return np.array([0.0, 1, 0, 1])", 40, "of float64"),
        ("return np.zeros((4, 1), int)", 40, "2 dimensions"),
        ("return pa.array([0, None, 1, 0])", 40, "1 nulls"),
        ("return pa.array(['0', '1', '0', '1'])", 40, "it returned an array of string"),
        ("return [0, 1, 0, 1]", 40, "it returned list, which is no array"),
        (
            "raise ValueError(rows['v'][0].as_py())",
            40,
            r"fails for rows that go to out: ValueError \(.*where.py:3\)",
        ),
    ],
)
def test_what_is_no_partition_refuses_the_window(
    tmp_path: Path, body: str, offset: int, says: str
) -> None:
    """A partition function's result is checked for length, range and type.

    The error names topic and source offset, and no value.
    """
    text = f"import numpy as np, pyarrow as pa\ndef place(keys, rows, partitions):\n    {body}\n"
    partition_function = PartitionFunction(function(tmp_path, text), {"out": 2}, "out")
    with pytest.raises(RefusedError, match=says) as refused:
        partition_function.with_partitions(
            encoded([None] * 4), rows("secret", "secret", "secret", "secret"), OFFSETS, SPLIT
        )
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.orders",
        3,
        offset,
    )
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no.py:place", "function file .* read"),
        ("where.py:other", "There is no function other"),
        ("where.py:pc", "is no function"),
    ],
)
def test_a_function_that_is_not_there(tmp_path: Path, reference: str, says: str) -> None:
    """The error for a missing partition function names it, and shows how to refer to a function."""
    function(tmp_path, BY_LENGTH)
    partition_function = PartitionFunction(
        FunctionReference(reference, tmp_path), {"out": 2}, "out"
    )
    with pytest.raises(SpecError, match=says) as refused:
        partition_function.with_partitions(
            encoded([None] * 4), rows("a", "b", "c", "d"), OFFSETS, SPLIT
        )
    assert "FILE.py:function" in refused.value.advice


def java_partition(key: bytes, partitions: int) -> int:
    """Computes Java's partition: `Utils.toPositive(Utils.murmur2(key)) % partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Computes Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned number."""
    mix, word = 0x5BD1E995, 0xFFFFFFFF
    digest = 0x9747B28C ^ len(data)
    aligned_length = len(data) // 4 * 4
    for offset in range(0, aligned_length, 4):
        part = int.from_bytes(data[offset : offset + 4], "little") * mix & word
        part = (part ^ part >> 24) * mix & word
        digest = (digest * mix & word) ^ part
    if data[aligned_length:]:
        digest = (digest ^ int.from_bytes(data[aligned_length:], "little")) * mix & word
    digest = (digest ^ digest >> 13) * mix & word
    return digest ^ digest >> 15


def test_the_oracle_has_javas_numbers() -> None:
    """The test's murmur2 has the numbers of `UtilsTest.testMurmur2` in Kafka's own tests."""
    hash_by_key = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
    }
    assert {key: murmur2(key) - (murmur2(key) >> 31 << 32) for key in hash_by_key} == hash_by_key


def table(kafka: str, folder: Path, topic: str, **more: Any) -> Any:
    """Returns a prepared table of one topic, whose key is the column `k`."""
    options = KafkaOptions(
        (topic,),
        f"{topic}.windrow",
        str(folder / "staging"),
        value=PlainSerializer("raw", ("v",)),
        key=PlainSerializer("raw", ("k",)),
        **more,
    )
    sink = KafkaBoth(ClusterConnection(kafka), options, ROWS)
    sink.prepare()
    return sink


@pytest.mark.broker
@pytest.mark.slow
def test_keys_go_where_java_puts_them(kafka: str, tmp_path: Path) -> None:
    """With `key-hash` a key's partition is Java's.

    All messages with a null key go to one partition.
    """
    topic = create_topic(kafka, 7)
    keys = [b"foobar", b"", *(b"key-%d" % n * (n % 5) for n in range(40)), *([None] * 8)]
    sink = table(kafka, tmp_path, topic, partitioner="key-hash")
    assert isinstance(sink.commit(*stage_rows(sink, [(key, "v", topic) for key in keys])), Done)
    keys_and_partitions = [(m.key(), m.partition()) for m in read_committed(kafka, topic)]
    assert len(keys_and_partitions) == len(keys)
    assert all(partition == java_partition(key or b"", 7) for key, partition in keys_and_partitions)


@pytest.mark.broker
@pytest.mark.slow
def test_messages_go_where_the_function_says(kafka: str, tmp_path: Path) -> None:
    """A partition function gets the topic's number of partitions, and each message goes to the
    partition that it returns.
    """
    topic = create_topic(kafka, 4)
    sink = table(
        kafka, tmp_path, topic, partitioner="function", function=function(tmp_path, BY_LENGTH)
    )
    values = ["x" * (1 + n % 6) for n in range(30)]
    assert isinstance(
        sink.commit(*stage_rows(sink, [(None, value, topic) for value in values])), Done
    )
    offsets_and_partitions = sorted(
        (origin_of(m)[0][2], m.partition()) for m in read_committed(kafka, topic)
    )
    assert offsets_and_partitions == [(n, min(len(value), 4) - 1) for n, value in enumerate(values)]


@pytest.mark.broker
@pytest.mark.slow
def test_a_function_may_say_something_else_the_next_time(kafka: str, tmp_path: Path) -> None:
    """A partition function may give other partitions at the retry; every message is still there
    once.

    1. A window's splits are published.
    2. The run dies.
    3. Its retry gets other partitions.
    """
    constant = (
        "import numpy as np\ndef place(keys, rows, partitions):\n    return np.full(len(keys),"
        " {})\n"
    )
    first, second = constant.format(0), constant.format(1)
    location = create_location(kafka, str(tmp_path / "staging"))
    sink = open_sink(
        location, KafkaBoth, partitioner="function", function=function(tmp_path, first)
    )
    sink.prepare()

    class DiedError(Exception):
        """The error that ends a run like a kill."""

    def dies() -> None:
        raise DiedError

    before_fence(sink, dies, of_receipt=True)
    with pytest.raises(DiedError):
        sink.commit(*staged_receipt(sink, 0, dead=False))
    retry = open_sink(
        location, KafkaBoth, partitioner="function", function=function(tmp_path, second)
    )
    assert isinstance(retry.commit(*staged_receipt(retry, 0, 0, "retry", dead=False)), Done)
    ids = [row for piece in pieces(retry) for row in piece[THINGS.names[0]].to_pylist()]
    assert len(ids) == len(set(ids)) > 0
    assert {message.partition() for message in read_committed(kafka, sink.options.topics[0])} == {0}
