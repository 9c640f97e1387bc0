"""`spark.read.format("windrow")` on real Kafka and Spark: exactly the same offsets, each time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import windrow
from tests.integration.harness import HERE, millis
from tests.kafka.produce import (
    Put,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    transaction,
)
from tests.shape.readme import ROOT, blocks
from windrow.ingest.model.plan import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

PAGE = (ROOT / "docs" / "dataframes.md").read_text(encoding="utf-8")


@pytest.fixture
def reading(spark: SparkSession, kafka: str) -> Any:
    """A function that takes splits or options and returns a DataFrame."""
    spark.dataSource.register(windrow.WindrowSource)

    def read(*splits: Split, **options: str) -> DataFrame:
        reader = spark.read.format("windrow").options(**options)
        if splits:
            reader = reader.option("splits", msgspec.json.encode(splits).decode())
        return (reader if "spec" in options else reader.option("bootstrap_servers", kafka)).load()

    return read


@pytest.fixture
def things(kafka: str, tmp_path: Path) -> Path:
    """The spec of a pipeline on two partitions, with four rows at nine o'clock and two at ten."""
    topic = create_topic(kafka, 2)
    nine = [
        Put(
            b'{"id": %d, "name": "n%d"}' % (n, n),
            millis(9, n),
            n % 2,
            key=b"k",
            headers=[("h", b"1"), ("h", None)],
        )
        for n in range(4)
    ]
    produce(
        kafka,
        topic,
        [
            *nine,
            Put(b'{"id": 9, "name": null}', millis(10), 0),
            Put(b'{"id": 10, "name": null}', millis(10), 1),
        ],
    )
    shutil.copy(HERE / "things.py", tmp_path)
    spec = tmp_path / "things.yaml"
    spec.write_text(
        f"id: things\nsource: {{bootstrap_servers: '{kafka}', topic: {topic}}}\nwindow: {{grid:"
        " hourly, start: 2026-01-05T00:00:00Z, delay: 1m}\ndecode: {schema:"
        " 'things.py:Thing'}\nsink: {kind: delta, path: ./things}\nstate: ./state.db\n"
    )
    return spec


def offsets(
    frame: DataFrame, partition: str = "partition", offset: str = "offset"
) -> list[tuple[int, int]]:
    """Returns partition and offset of the rows of a DataFrame, sorted."""
    return sorted(
        (row[partition], row[offset]) for row in frame.select(partition, offset).collect()
    )


def test_messages_of_exact_ranges(kafka: str, reading: Any) -> None:
    """There is one task for each split, and each message of the splits is read once.

    Messages have all of Kafka's fields. Aborted messages aren't read.
    """
    topic = create_topic(kafka, 2)
    produce(
        kafka,
        topic,
        [
            Put(b"v%d" % n, millis(9, n), 0, key=None, headers=[("h", b"1"), ("h", None)])
            for n in range(6)
        ],
    )
    produce(kafka, topic, [Put(None, 2**62, 1, key=b"k")])
    transaction(kafka, topic, [Put(b"aborted", millis(9), 1)], commit=False)
    produce(kafka, topic, [Put(b"", millis(9), 1)])
    frame = reading(Split(topic, 0, 1, 3), Split(topic, 0, 3, 5), Split(topic, 1, 0, 4))
    assert frame.rdd.getNumPartitions() == 3
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    assert [(row.partition, row.offset, row.key, row.value) for row in rows] == [
        (0, 1, None, b"v1"),
        (0, 2, None, b"v2"),
        (0, 3, None, b"v3"),
        (0, 4, None, b"v4"),
        (1, 0, b"k", None),
        (1, 3, None, b""),
    ]
    assert {row.topic for row in rows} == {topic}
    assert [tuple(header) for header in rows[0].headers] == [("h", b"1"), ("h", None)]
    assert rows[0].timestamp_type == "CreateTime"
    assert rows[0].timestamp is not None
    assert rows[4].timestamp is None, "no table can hold it"


@pytest.mark.long
def test_whatever_spark_does_it_reads_the_same(kafka: str, reading: Any, tmp_path: Path) -> None:
    """A count, a join with itself and a write of one DataFrame read the same messages.

    New messages in the topic don't matter.
    """
    topic = create_topic(kafka)
    produce(kafka, topic, [Put(b"%d" % n, millis(9), key=b"k") for n in range(50)])
    frame = reading(Split(topic, 0, 10, 40))
    assert frame.count() == 30
    produce(kafka, topic, [Put(b"later", millis(9), key=b"k") for _ in range(20)])
    assert frame.alias("a").join(frame.alias("b"), "offset").count() == 30
    frame.write.parquet(str(tmp_path / "out"))
    assert offsets(frame.sparkSession.read.parquet(str(tmp_path / "out"))) == [
        (0, n) for n in range(10, 40)
    ]
    assert len(frame.limit(3).collect()) == 3


@pytest.mark.long
def test_a_topic_that_is_made_anew_is_another_one(kafka: str, reading: Any) -> None:
    """If the topic was deleted and made again, a DataFrame on the old topic is refused."""
    topic = create_topic(kafka)
    produce(kafka, topic, [Put(b"old", millis(9))])
    frame = reading(Split(topic, 0, 0, 1))
    delete_topic(kafka, topic)
    create_topic(kafka, name=topic)
    produce(kafka, topic, [Put(b"new", millis(9))])
    with pytest.raises(Exception, match=r"has id .*the plan was made for"):
        frame.count()


@pytest.mark.long
def test_what_is_gone_or_not_there_yet_is_refused(kafka: str, reading: Any) -> None:
    """Offsets below the log's start are refused when the DataFrame is made, and when it is read.

    Offsets above the last stable offset are refused, too.
    """
    topic = create_topic(kafka)
    produce(kafka, topic, [Put(b"%d" % n, millis(9)) for n in range(10)])
    frame = reading(Split(topic, 0, 0, 10))
    delete_records(kafka, topic, 0, 4)
    with pytest.raises(Exception, match=rf"{topic}\[0\]"):
        frame.count()
    with pytest.raises(Exception, match="the log begins at offset 4 now"):
        reading(Split(topic, 0, 3, 10))
    with pytest.raises(Exception, match="the last stable offset is 10"):
        reading(Split(topic, 0, 5, 11))
    with pytest.raises(Exception, match="has 1 partition"):
        reading(Split(topic, 1, 0, 1))
    assert offsets(reading(Split(topic, 0, 4, 10))) == [(0, n) for n in range(4, 10)]


def test_a_windows_rows(things: Path, reading: Any) -> None:
    """The rows of a pipeline's windows are those of a run, with their offsets.

    Read as messages, the same offsets are given.
    """
    rows = reading(spec=str(things), window="2026-01-05T09:00:00Z/2026-01-05T11:00:00Z")
    assert rows.columns == ["id", "name", "_topic", "_partition", "_offset", "_timestamp"]
    assert not rows.schema["id"].nullable
    collected = sorted(
        (row.id, row.name, row["_partition"], row["_offset"]) for row in rows.collect()
    )
    assert collected == [
        (0, "n0", 0, 0),
        (1, "n1", 1, 0),
        (2, "n2", 0, 1),
        (3, "n3", 1, 1),
        (9, None, 0, 2),
        (10, None, 1, 2),
    ]
    messages = reading(spec=str(things), window="2026-01-05T09:00:00Z", columns="messages")
    assert offsets(messages) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert reading(spec=str(things), window="2026-01-05T12:00:00Z", columns="messages").count() == 0


@pytest.mark.long
def test_a_window_that_is_not_over_is_refused(things: Path, reading: Any) -> None:
    """A window that isn't closed is refused, because the next read could differ."""
    with pytest.raises(Exception, match="is not closed yet"):
        reading(spec=str(things), window="2999-01-05T09:00:00Z", columns="messages")


@pytest.mark.long
def test_a_message_that_is_no_row(kafka: str, things: Path, reading: Any) -> None:
    """A message that can't be decoded refuses the read, without its content, or is left out.

    The mode decides.
    """
    topic = windrow.load_spec(things).source.topic
    produce(kafka, str(topic), [Put(b'{"id": "secret"}', millis(10, 30), 1)])
    options = {"spec": str(things), "window": "2026-01-05T10:00:00Z"}
    with pytest.raises(
        Exception, match=rf"A message can't become a row.*{topic}\[1\]@3"
    ) as refused:
        reading(**options).count()
    assert "secret" not in str(refused.value)
    assert reading(**options, mode="DROPMALFORMED").count() == 2


@pytest.mark.long
def test_rows_of_a_table_with_a_key_are_changes(kafka: str, things: Path, reading: Any) -> None:
    """With a primary key, the rows are changes, and the last column marks deletes."""
    topic, key = str(windrow.load_spec(things).source.topic), b'{"id": 9}'
    produce(
        kafka,
        topic,
        [Put(b'{"name": "a"}', millis(11), 0, key=key), Put(None, millis(11, 1), 0, key=key)],
    )
    keyed = things.read_text().replace(
        "path: ./things}", "path: ./keyed, mode: upsert, primary_key: [id]}"
    )
    things.write_text(
        keyed.replace(
            "'things.py:Thing'}",
            "'things.py:Thing', key: {fields: [id]}, fields_include: except_key}",
        )
    )
    rows = reading(spec=str(things), window="2026-01-05T11:00:00Z").orderBy("_offset").collect()
    assert [(row.id, row.name, row["_deleted"]) for row in rows] == [
        (9, "a", False),
        (9, None, True),
    ]


@pytest.mark.long
def test_columns_are_not_the_users_to_tell(spark: SparkSession, kafka: str, reading: Any) -> None:
    """A schema given by the user is refused, because values could be misread."""
    topic = create_topic(kafka)
    reader = spark.read.format("windrow").schema("value binary").option("bootstrap_servers", kafka)
    with pytest.raises(Exception, match="can't be set by schema"):
        reader.option(
            "splits", msgspec.json.encode([Split(topic, 0, 0, 1)]).decode()
        ).load().count()


@pytest.mark.long
def test_the_example_runs(
    spark: SparkSession,
    things: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page's code works as it is."""
    code, *_ = blocks("python", PAGE)
    monkeypatch.chdir(things.parent)
    things.rename(things.parent / "defs.yaml")
    exec(
        compile(
            code.replace("payments/defs.yaml", str(things.parent / "defs.yaml")),
            "docs/dataframes.md",
            "exec",
        ),
        {"spark": spark},
    )
    assert "4 rows, 4 of them the newest of their id" in capsys.readouterr().out
