"""`df.write.format("windrow-kafka")` on real Kafka and Spark: each batch is written once.

That holds after any crash, and if a batch is written several times.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka as ck
import pytest

import windrow
from tests.kafka.produce import create_topic
from tests.shape.readme import ROOT, blocks
from tests.sinks.kafka.world import read_committed
from windrow.ingest.dataframes.options import write_options
from windrow.ingest.dataframes.sink import read_write_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.settings.logins import MskLogin
from windrow.ingest.sinks.kind import OnClusterSection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

real = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

LIMIT = 180
"""Limit in seconds for a Spark session in a separate process."""


class Ground:
    """A target topic, and the file for writes to it."""

    def __init__(self, kafka: str, folder: Path, more: str = "") -> None:
        self.kafka, self.folder, self.topic = kafka, folder, create_topic(kafka, partitions=2)
        self.spec = folder / "out.yaml"
        self.spec.write_text(
            f"id: out\nsink: {{bootstrap_servers: '{kafka}', topic: {self.topic}, staging:"
            f" ./staging, key: {{columns: [id]}}{more}}}\n"
        )

    def write(self, frame: DataFrame, batch: int, mode: str = "append") -> None:
        frame.sparkSession.dataSource.register(windrow.WindrowKafka)
        frame.write.format("windrow-kafka").option("spec", str(self.spec)).option(
            "batch", batch
        ).mode(mode).save()

    def messages(self) -> list[ck.Message]:
        """Returns the committed messages of the target topic."""
        return list(read_committed(self.kafka, self.topic))

    def ids(self) -> Counter[int]:
        return Counter(json.loads(m.value() or b"")["id"] for m in self.messages())


@pytest.fixture
def ground(kafka: str, tmp_path: Path) -> Ground:
    return Ground(kafka, tmp_path)


def each_once(*ranges: range) -> Counter[int]:
    return Counter(n for numbers in ranges for n in numbers)


class TestOnSpark:
    """Writes in the tests' Spark session."""

    pytestmark = real

    def test_each_batch_is_there_once(self, spark: SparkSession, ground: Ground) -> None:
        """A batch that is written again writes nothing, even with other rows or partitions.

        A batch with another number is written. Rows of files, whose columns are nullable in
        Spark, can be written.
        """
        rows = spark.range(500).selectExpr("id", "concat('n', id) AS name")
        ground.write(rows.repartition(5), 7)
        ground.write(rows.repartition(2), 7)
        ground.write(spark.range(900, 950), 7)
        assert ground.ids() == each_once(range(500))
        files = str(ground.folder / "files")
        spark.range(1000, 1010).write.parquet(files)
        ground.write(spark.read.parquet(files), 3)
        assert ground.ids() == each_once(range(500), range(1000, 1010))
        message = ground.messages()[0]
        headers = dict(message.headers() or ())
        assert {"windrow.origin"} == set(headers)
        number = json.loads(message.value() or b"")["id"]
        assert re.fullmatch(
            rb"out/batch-000000007/out/\d+/\d+/", bytes(headers["windrow.origin"] or b"")
        )
        assert message.key() == b'{"id":%d}' % number
        assert not list((ground.folder / "staging").rglob("*.arrow")), (
            "what is published is of no more use"
        )

    @pytest.mark.long
    def test_the_example_runs(
        self, spark: SparkSession, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The page's code and file work, with only the cluster and the topic replaced."""
        page = (ROOT / "docs" / "dataframes.md").read_text(encoding="utf-8")
        code, file = blocks("python", page)[-1], blocks("yaml", page)[-1]
        monkeypatch.chdir(ground.folder)
        spec = ground.folder / "totals.yaml"
        spec.write_text(
            file.replace("127.0.0.1:9092", ground.kafka).replace(
                "topic: totals", f"topic: {ground.topic}"
            )
        )
        for _ in range(2):
            exec(
                compile(code.replace("totals.yaml", str(spec)), "docs/dataframes.md", "exec"),
                {"spark": spark},
            )
        assert Counter(
            json.loads(m.value() or b"")["customer"] for m in ground.messages()
        ) == each_once(range(1000))

    @pytest.mark.long
    def test_what_dead_writes_left_is_removed_after_a_week(
        self, spark: SparkSession, ground: Ground
    ) -> None:
        """A later write removes staged files that are older than a week, and leaves
        younger ones.
        """
        leftover = ground.folder / "staging" / "staged" / "batch-000000009"
        leftover.mkdir(parents=True)
        for name, days in (("old", 8), ("new", 6)):
            (leftover / f"{name}.arrow").touch()
            os.utime(leftover / f"{name}.arrow", (time.time() - days * 86_400,) * 2)
        ground.write(spark.range(3), 1)
        assert [path.name for path in (ground.folder / "staging").rglob("*.arrow")] == ["new.arrow"]

    @pytest.mark.long
    def test_no_rows_are_a_batch_too(self, spark: SparkSession, ground: Ground) -> None:
        """A batch without rows is committed, so no other batch can have its number."""
        ground.write(spark.range(0), 1)
        ground.write(spark.range(5), 1)
        assert ground.messages() == []

    @pytest.mark.long
    def test_the_order_of_a_partition_stays(
        self, spark: SparkSession, kafka: str, tmp_path: Path
    ) -> None:
        """Each partition of the topic gets its rows in the order of the DataFrame."""
        ground = Ground(kafka, tmp_path)
        ground.write(
            spark.range(300)
            .orderBy("id", ascending=False)
            .repartitionByRange(3, "id")
            .sortWithinPartitions("id"),
            1,
        )
        by_partition: dict[int, list[int]] = {0: [], 1: []}
        for message in ground.messages():
            by_partition[message.partition() or 0].append(json.loads(message.value() or b"")["id"])
        assert all(ids == sorted(ids) and ids for ids in by_partition.values())

    @pytest.mark.long
    def test_values_as_bytes_with_a_topic_each(
        self, spark: SparkSession, kafka: str, tmp_path: Path
    ) -> None:
        """The columns key, value and topic work like with Spark's own Kafka sink.

        A row with a topic that the file doesn't name refuses the batch.
        """
        ground = Ground(kafka, tmp_path)
        other_topic = create_topic(kafka)
        ground.spec.write_text(
            f"id: out\nsink:\n  bootstrap_servers: '{kafka}'\n  topics: [{ground.topic},"
            f" {other_topic}]\n"
            f"  topic_column: topic\n  control_topic: {ground.topic}.windrow\n  staging:"
            " ./staging\n  key: {format: raw, columns: [key]}\n  value: {format: raw, columns:"
            " [value]}\n"
        )
        rows = [(b"k1", b"\x00v", ground.topic), (None, b"w", other_topic)]
        ground.write(spark.createDataFrame(rows, "key binary, value binary, topic string"), 1)
        assert [(m.key(), m.value()) for m in ground.messages()] == [(b"k1", b"\x00v")]
        assert [(m.key(), m.value()) for m in read_committed(kafka, other_topic)] == [(None, b"w")]
        with pytest.raises(Exception, match=r"none of sink\.topics"):
            ground.write(
                spark.createDataFrame(
                    [(b"k", b"v", "elsewhere")], "key binary, value binary, topic string"
                ),
                2,
            )
        assert len(ground.messages()) == 1

    @pytest.mark.long
    def test_what_fails_publishes_nothing(self, spark: SparkSession, ground: Ground) -> None:
        """If a task fails, nothing is published; written again, the batch is there once."""
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            ground.write(spark.range(100).selectExpr("id", "1 / IF(id = 77, 0, 1) AS x"), 1)
        assert ground.messages() == []
        ground.write(spark.range(100), 1)
        assert ground.ids() == each_once(range(100))

    @pytest.mark.long
    def test_it_says_what_it_cannot_do(self, spark: SparkSession, ground: Ground) -> None:
        """Overwriting, a table of another pipeline, and a column named like a header
        are refused.
        """
        with pytest.raises(Exception, match="can't be taken back"):
            ground.write(spark.range(1), 1, mode="overwrite")
        with pytest.raises(Exception, match="windrow_row"):
            ground.write(spark.range(1).selectExpr("id", "id AS windrow_row"), 1)
        ground.write(spark.range(1), 1)
        ground.spec.write_text(ground.spec.read_text().replace("id: out", "id: other"))
        with pytest.raises(Exception, match="belongs to pipeline 'out'"):
            ground.write(spark.range(1), 1)

    @pytest.mark.long
    def test_a_stream_writes_each_of_its_batches_once(
        self, spark: SparkSession, ground: Ground
    ) -> None:
        """A stream with `foreachBatch` that starts again writes only the missing batches."""
        source, checkpoints = (
            ground.folder / "source",
            [
                ground.folder / "one",
                ground.folder / "two",
            ],
        )
        source.mkdir()
        for n in range(3):
            (source / f"{n}.json").write_text(
                "".join(f'{{"id": {i}}}\n' for i in range(n * 10, n * 10 + 10))
            )
        for checkpoint in checkpoints:
            stream = (
                spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
            )
            going = (
                stream.writeStream.foreachBatch(ground.write)
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            assert going.awaitTermination(LIMIT)
            assert ground.ids() == each_once(range(30))


WRITE = """
import sys
import windrow
from windrow.ingest.runner.spark.cluster import spark_session
spec, batch, first, last = sys.argv[1:]
spark = spark_session("local[2,4]")
spark.dataSource.register(windrow.WindrowKafka)
rows = spark.range(int(first), int(last)).repartition(3)
rows.write.format("windrow-kafka").option("spec", spec).option("batch", batch).mode("append").save()
"""


def process(ground: Ground, crash: str = "") -> subprocess.Popen[bytes]:
    """Starts a process that writes batch 1 with the ids 0 to 199.

    `crash` is the variable WINDROW_CRASH for it and its workers.
    """
    environment = {**os.environ, "WINDROW_CRASH": crash, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, str(ground.spec), "1", "0", "200"],
        env=environment,
        stderr=subprocess.DEVNULL,
        cwd=ground.folder,
    )


@pytest.mark.long
class TestByConnect:
    """Writes on a Spark Connect server."""

    pytestmark = real

    def test_a_batch_is_there_once(self, spark_server: str, ground: Ground) -> None:
        """The server writes and commits a batch, and an existing batch stays."""
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(spark_server).create()
        try:
            ground.write(session.range(200).repartition(3), 1)
            ground.write(session.range(200), 1)
        finally:
            session.stop()
        assert ground.ids() == each_once(range(200))


@pytest.mark.long
class TestThatDies:
    """Writes in separate processes that die."""

    pytestmark = real

    @pytest.mark.parametrize("crash", ["commit.before:kill", "commit.after:kill"])
    def test_a_commit_that_dies_is_found_or_made_by_the_next(
        self, ground: Ground, crash: str
    ) -> None:
        """After a commit that was killed, the next write of the batch finds or makes the commit.

        1. The committing process is killed right before or after its commit.
        2. The write fails.
        3. The batch is written again, and each row is there once.
        """
        assert process(ground, crash).wait(LIMIT) != 0
        assert process(ground).wait(LIMIT) == 0
        assert ground.ids() == each_once(range(200))

    def test_a_worker_that_dies_is_run_again(self, ground: Ground) -> None:
        """After a worker was killed, Spark runs its task again, and each row is there once."""
        assert process(ground, f"write.middle:kill:{ground.folder / 'once'}").wait(LIMIT) == 0
        assert (ground.folder / "once").exists()
        assert ground.ids() == each_once(range(200))

    def test_two_at_once_are_one(self, ground: Ground) -> None:
        """Of two drivers that write one batch at the same time, one publishes it, and
        both succeed.
        """
        both = [process(ground) for _ in range(2)]
        assert [writer.wait(LIMIT) for writer in both] == [0, 0]
        assert ground.ids() == each_once(range(200))


def test_all_that_is_wrong_with_the_options() -> None:
    """All mistakes in options are reported together, also unknown options."""
    with pytest.raises(SpecError) as error:
        write_options({"batch": "-1", "bath": "1", "path": "x"})
    for part in (
        "spec: is missing",
        "batch: must be a number of up to 9 digits",
        "bath: unknown",
        "save()",
    ):
        assert part in error.value.message


REFUSED: list[tuple[str, str]] = [
    ("id: out", "1 mistake in"),
    ("id: out", "sink: is missing"),
    ("[]", "is a mapping with id and sink"),
    ("id: out\nsink: {kind: delta, path: x}", "there is no such kind here; known are kafka"),
    ("id: out\nsink: {topic: t, staging: ./s}", "sink.bootstrap_servers: is missing"),
    (
        "id: out\nsink: {bootstrap_servers: 'b:1', topic: t, staging: ./s, atomic_window: false}",
        "always true here",
    ),
    (
        (
            "id: out\nsink: {bootstrap_servers: 'b:1', topic: t, staging: ./s, delivery_guarantee:"
            " none}"
        ),
        "always exactly-once here",
    ),
    (
        "id: out\nsink: {bootstrap_servers: 'b:1', topic: t, staging: ./s, timestamp: message}",
        "must be published or a column",
    ),
    (
        "id: out\nsink: {bootstrap_servers: 'b:1', topic: t, staging: ./s, partitioner: source}",
        "goes by the splits",
    ),
    (
        (
            "id: out\nsink: {bootstrap_servers: 'b:1', topic: t, staging: ./s, mode: upsert,"
            " primary_key: [id]}"
        ),
        "must be append",
    ),
    ("id: out\nsink: {cluster: main, topic: t, staging: ./s}", "there is no windrow.yaml"),
    ("id: out\nsink: {topic: t, staging: ./s}", "is missing, and so is cluster"),
    (
        "id: out\nsink: {bootstrap_servers: 'b:1', topic: t, staging: ./s, client: {acks: 1}}",
        "acks",
    ),
    (
        "id: out\nwindow: {}\nsink: {bootstrap_servers: 'b:1', topic: t, staging: ./s}",
        "window: unknown key",
    ),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, says: str) -> None:
    """A setting of a pipeline's sink that a write doesn't support is refused with its place."""
    (tmp_path / "out.yaml").write_text(text)
    with pytest.raises(SpecError) as error:
        read_write_spec(tmp_path / "out.yaml")
    assert says in error.value.message


def test_a_file_names_a_cluster(tmp_path: Path) -> None:
    """A write goes to the cluster that its file names, with that cluster's login."""
    (tmp_path / "windrow.yaml").write_text(
        "clusters: {main: {bootstrap_servers: 'b:1', client: {security.protocol: SASL_SSL,"
        " sasl.mechanism: OAUTHBEARER, oauth: {method: aws_msk_iam, region: eu-west-1}}}}"
    )
    (tmp_path / "out.yaml").write_text(
        "id: out\nsink: {cluster: main, topic: t, staging: ./s, client: {client.rack: a}}"
    )
    sink = read_write_spec(tmp_path / "out.yaml").sink
    assert isinstance(sink, OnClusterSection)
    assert sink.bootstrap_servers == "b:1"
    assert sink.client["oauth"] == MskLogin(region="eu-west-1")
    assert sink.client["client.rack"] == "a"
