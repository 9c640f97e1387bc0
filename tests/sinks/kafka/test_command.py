"""A pipeline into a Kafka topic, by the command: the source is in memory, the sink on a real
broker.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HOURLY, START, Stage, hour, stage
from tests.kafka.produce import configure, create_topic, delete_topic
from tests.sinks.kafka.world import read_committed
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.sinks.kafka import store, transactions
from windrow.ingest.sinks.kafka.sink import KafkaSink

__all__ = ["stage"]

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SINK = (
    "sink: {{kind: kafka, bootstrap_servers: '{servers}', topic: {topic}, staging: lake/staging,"
    " key: {{columns: [id]}}, {more}}}"
)


class Out:
    """A stage whose sink is a topic that needs no more replicas than it has."""

    def __init__(self, stage: Stage, kafka: str) -> None:
        self.stage, self.kafka = stage, kafka
        self.topic = create_topic(kafka, partitions=2, config={"min.insync.replicas": "2"})
        self.write()

    def write(self, more: str = "transactional_id_pool: 3") -> None:
        """Writes the spec, with more options of its sink."""
        self.stage.write()
        spec = Path(self.stage.spec)
        sink = SINK.format(servers=self.kafka, topic=self.topic, more=more)
        spec.write_text(spec.read_text().replace("sink: {path: lake/things}", sink))


@pytest.fixture
def out(stage: Stage, kafka: str) -> Out:
    """A pipeline into a topic of two partitions."""
    return Out(stage, kafka)


def test_a_pipeline_runs_on_it(out: Out) -> None:
    """The commands run, show, dead letters, verify, doctor and sweep work on it.

    A replay is refused.
    """
    stage, spec = out.stage, out.stage.spec
    assert (
        stage.json("run", spec, "--window", hour(0))["windows"][0]["committed"]["receipt"][
            "counts"
        ]["valid"]
        == 4
    )
    assert stage.json("run", spec, "--window", hour(0))["windows"][0]["recovered"] is True
    assert (
        "keeps what was committed once"
        in stage.json("replay", spec, "--window", hour(0), code=2)["error"]["message"]
    )
    assert len(stage.json("show", spec)["windows"]) == 1
    assert [letter["reason"] for letter in stage.json("dead", "show", spec)["dead"]] == ["not_json"]
    assert stage.json("verify", spec, "--deep")["findings"] == []
    assert stage.json("maintain", spec, "--dry-run")["maintained"]["removed_files"] == []
    assert (
        next(c for c in stage.json("doctor", spec, code=0)["checks"] if c["name"] == "sink")[
            "level"
        ]
        == "ok"
    )
    messages = [
        (json.loads(m.value() or b""), m.key(), dict(m.headers() or ()))
        for m in read_committed(out.kafka, out.topic)
    ]
    assert sorted(value["id"] for value, _, _ in messages) == [0, 1, 2, 3]
    value, key, headers = messages[0]
    assert json.loads(key or b"") == value
    assert headers.keys() == {"windrow.origin"}
    assert re.fullmatch(
        rb"things/[-0-9T:]+Z/shop\.things/[01]/\d+/\d+", headers["windrow.origin"] or b""
    )


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("more", "level", "says"),
    [
        (
            "delivery_guarantee: at-least-once",
            "ok",
            "may be there twice: delivery_guarantee is at-least-once",
        ),
        ("delivery_guarantee: none, acks: 0", "warn", "may be there twice, or be missing"),
    ],
)
def test_less_than_exactly_once(out: Out, more: str, level: str, says: str) -> None:
    """A window is run and verified, and doctor names what isn't guaranteed."""
    out.write(more)
    assert (
        out.stage.json("run", out.stage.spec, "--window", hour(0))["windows"][0]["committed"][
            "receipt"
        ]["counts"]["valid"]
        == 4
    )
    (check,) = (
        c for c in out.stage.json("doctor", out.stage.spec, code=0)["checks"] if c["name"] == "sink"
    )
    assert (check["level"], says in check["what"]) == (level, True)
    assert [
        f
        for f in out.stage.json("verify", out.stage.spec, "--deep")["findings"]
        if f["level"] == "wrong"
    ] == []


def test_more_headers(out: Out) -> None:
    """Each message has the headers that `headers` names.

    Metadata columns that the origin header doesn't contain become headers, too. verify checks
    every byte.
    """
    out.write("headers: {hour: _window, from: _topic, id: id}")
    spec = Path(out.stage.spec)
    spec.write_text(spec.read_text() + "metadata: {ordinal: nth, timestamp: none}\n")
    out.stage.json("run", out.stage.spec, "--window", hour(0))
    message_headers = [dict(m.headers() or ()) for m in read_committed(out.kafka, out.topic)]
    assert {tuple(headers) for headers in message_headers} == {
        ("windrow.origin", "nth", "hour", "from", "id")
    }
    assert {(h["hour"], h["from"], h["nth"]) for h in message_headers} == {
        (hour(0).encode(), b"shop.things", b"0")
    }
    assert sorted(headers["id"] for headers in message_headers) == [b"0", b"1", b"2", b"3"]
    assert out.stage.json("verify", out.stage.spec, "--deep")["findings"] == []


def test_messages_beside_those_of_the_receipt_are_told(out: Out) -> None:
    """verify --deep counts messages that no receipt names.

    1. A window is published.
    2. Its receipt is lost, and it is published again with --again.
    3. verify --deep counts the messages.
    """
    out.stage.json("run", out.stage.spec, "--window", hour(0))
    delete_topic(out.kafka, f"{out.topic}.windrow")
    assert out.stage.call("rebind", out.stage.spec, "--yes").exit_code == 0
    out.stage.json("run", out.stage.spec, "--window", hour(0))
    (finding,) = out.stage.json("verify", out.stage.spec, "--deep", code=1)["findings"]
    assert "4 messages lying where no receipt says" in finding["what"]
    assert (finding["level"], finding["window"]) == ("wrong", hour(0))


def test_a_window_is_not_published_again_by_receipts_that_are_put_back(out: Out) -> None:
    """Receipts aren't restored if a run would then publish a window again.

    1. Two windows are published.
    2. The control topic is deleted, and the ledger is a copy from after the first window.
    3. Nothing is restored: a run would publish the second window again. The same holds if only
       the second window's receipt is lost.
    """
    stage, spec, ledger = out.stage, out.stage.spec, Path(".windrow/state.db")
    stage.json("run", spec, "--window", hour(0))
    older = ledger.read_bytes()
    stage.json("run", spec, "--window", hour(1))
    ledger.write_bytes(older)
    delete_topic(out.kafka, f"{out.topic}.windrow")
    for flags in ((), ("--yes",)):
        report = stage.json("verify", spec, "--restore-receipts", *flags, code=1)
        (failed,) = report["failed"]
        assert (report["windows"], hour(1) in failed["what"]) == ([], True)
    assert stage.call("run", spec, "--window", hour(1)).exit_code == 1
    assert len(list(read_committed(out.kafka, out.topic))) == 8


def test_a_batch_that_is_half_published_outlives_its_ledger(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro-batch that is published in part keeps its end when its ledger is lost.

    1. One topic-partition of a micro-batch is published, the second of its plan, and the run
       dies.
    2. The ledger is lost, and the topic grows.
    3. The rebuilt ledger ends the batch where the published messages end, as the run's message
       says.
    4. The next batch has the rest.
    """
    stage, spec, ledger = out.stage, out.stage.spec, Path(".windrow/state.db")
    text = Path(spec).read_text().replace(HOURLY, "grid: batch")
    Path(spec).write_text(text)
    stage.json("run", spec)
    monkeypatch.setattr(transactions, "SMALL", 4)
    monkeypatch.setattr(store, "PARALLEL", 1)

    def grows(first: int) -> None:
        for n in range(first, first + 9):
            partition = TopicPartition("shop.things", int(n % 3 > 0))
            stage.broker.produce(partition, b'{"id": %d}' % n, timestamp=START)

    writing, opened = store.FencedStore.writing, list[str]()

    def dies_at_the_second(part: store.FencedStore) -> Any:
        opened.append(part.name)
        assert len(opened) == 1, "dies"
        return writing(part)

    grows(100)
    with monkeypatch.context() as crash:
        crash.setattr(store.FencedStore, "writing", dies_at_the_second)
        assert stage.call("run", spec).exit_code == 70
    grows(200)
    ledger.unlink()
    assert "--rebuild-ledger" in stage.call("run", spec).output
    ledger.unlink()
    report = stage.json("doctor", spec, "--rebuild-ledger")
    assert "is published in part and has no receipt" in str(report)
    ranges = [
        [
            (s["topic"], s["partition"], s["start"], s["stop"])
            for s in w["committed"]["receipt"]["splits"]
        ]
        for w in stage.json("run", spec, "--drain")["windows"]
    ]
    assert ranges[0] == [("shop.things", 1, 5, 11)]
    assert stage.json("verify", spec, "--deep")["findings"] == []
    ids = sorted(json.loads(m.value() or b"")["id"] for m in read_committed(out.kafka, out.topic))
    assert ids[-18:] == [*range(100, 109), *range(200, 209)]


def test_a_published_message_is_not_replayed(out: Out) -> None:
    """Dead letters of a published window are not replayed into it, because messages in a topic
    can't be replaced.
    """
    out.stage.json("run", out.stage.spec, "--window", hour(0))
    reply = out.stage.json("dead", "replay", out.stage.spec, "--window", hour(0), code=2)
    assert "takes no second generation" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("topics: [a]", "exactly one of topic and topics"),
        ("value: {format: raw}", "sink.value.columns: must name one column"),
        ("cluster: prod", "must not be set together"),
        ("transaction_timeout: 1h", "must be 1s to 15m"),
        ("partitioner: random", "sink.partitioner"),
        ("partitioner: function", "goes with partitioner: function"),
        ("delivery_guarantee: at-most-once", "sink.delivery_guarantee"),
        ("delivery_guarantee: none, atomic_window: true", "there are no transactions"),
        (
            "delivery_guarantee: at-least-once, transactional_id_pool: 3",
            "there are no transactions",
        ),
        ("delivery_guarantee: at-least-once, transaction_timeout: 1m", "there are no transactions"),
        ("delivery_guarantee: at-least-once, acks: 1", "all replicas confirm"),
        ("acks: all", "goes with delivery_guarantee: none"),
        ("delivery_guarantee: none, acks: 2", "sink.acks"),
        ("topics: [a.windrow]", "must not end with .windrow"),
        ("partition_function: where.py:place", "goes with partitioner: function"),
        ("partitioner: function, partition_function: where", "must be FILE.py:function"),
        ("staging_path: x", "unknown key"),
    ],
)
def test_mistakes_are_told_when_the_spec_is_read(out: Out, more: str, says: str) -> None:
    """The error names the line of the spec, before the cluster is asked."""
    out.write(more)
    assert says in out.stage.json("show", out.stage.spec, code=2)["error"]["message"]


@pytest.mark.parametrize("writes_to", ["topic", "control topic", "dead letters"])
def test_a_loop_is_refused(out: Out, monkeypatch: pytest.MonkeyPatch, writes_to: str) -> None:
    """A pipeline may not write to a topic that it reads, whatever the cluster's address; plan,
    doctor and run refuse it.

    On a cluster with another id, a topic of the same name is another topic.
    """
    stage, spec = out.stage, Path(out.stage.spec)
    section = "dead_letters" if writes_to == "dead letters" else "sink"
    name = {"topic": out.topic, "control topic": f"{out.topic}.windrow"}.get(
        writes_to, "things.dead"
    )
    stage.write(source=f"topic_pattern: 'shop.things|{name}'")
    text = spec.read_text()
    if section == "sink":
        sink = SINK.format(servers=out.kafka, topic=out.topic, more="transactional_id_pool: 3")
        spec.write_text(text.replace("sink: {path: lake/things}", sink))
    else:
        spec.write_text(
            f"{text}dead_letters: {{topic: {name}, bootstrap_servers: 'elsewhere:9092'}}\n"
        )
    monkeypatch.setattr(KafkaSink, "cluster_id", lambda _: "memory")
    window = ("--window", hour(0))
    for command in (("plan", *window), ("doctor",), ("run", *window)):
        output = " ".join(stage.call(command[0], str(spec), *command[1:]).output.split())
        assert f"{name} is read by this pipeline, and {section} writes to it" in output, command
    monkeypatch.setattr(KafkaSink, "cluster_id", lambda _: "another")
    stage.dead_topic.cluster = "another"
    assert stage.call("run", str(spec), *window).exit_code == 0


def test_messages_that_the_topic_would_delete_at_once_are_told(out: Out) -> None:
    """plan, doctor and run warn of messages older than the target's retention.ms, as long as
    any are left to publish.

    Messages keep the time of the source's messages.
    """
    stage, spec = out.stage, out.stage.spec
    configure(out.kafka, out.topic, "retention.ms", str(30 * 3_600_000))
    stage.now = START + timedelta(hours=6)
    assert "retention.ms" not in stage.call("plan", spec, "--window", hour(0)).output
    stage.now = START + timedelta(hours=30, seconds=3)
    says = f"window {hour(0)} has 3 offsets older than retention.ms of {out.topic}"
    assert says in " ".join(stage.call("plan", spec, "--window", hour(0)).output.split())
    (check,) = (c for c in stage.json("doctor", spec)["checks"] if c["name"] == "next")
    assert (check["level"], says in check["what"]) == ("warn", True)
    (ran,) = stage.json("run", spec, "--window", hour(0))["windows"]
    assert [says in warning for warning in ran["committed"]["receipt"]["warnings"]] == [True]
    out.write("timestamp: published")
    assert "retention.ms" not in stage.call("plan", spec, "--window", hour(1)).output


def test_receipts_are_restored_before_a_table_is_given_up(out: Out) -> None:
    """Each command that names rebind, which would publish messages again, first names
    --restore-receipts.

    1. The control topic is deleted, and the messages stay.
    2. The commands are called.
    """
    out.stage.json("run", out.stage.spec, "--window", hour(0))
    delete_topic(out.kafka, f"{out.topic}.windrow")
    named = set[str]()
    for command in ("run", "lag", "doctor", "verify", "rebind"):
        window = ["--window", hour(1)] if command == "run" else []
        output = " ".join(out.stage.call(command, out.stage.spec, *window).output.split())
        restore, rebind = output.find("--restore-receipts"), output.find("windrow rebind")
        if command == "rebind" or rebind >= 0:
            named.add(command)
            assert restore >= 0, output
            assert command == "rebind" or restore < rebind, output
    assert named >= {"run", "doctor", "verify", "rebind"}


def test_a_hash_of_keys_needs_a_key(out: Out) -> None:
    """The partitioner `key-hash` without a key is refused when the spec is read."""
    out.write("partitioner: key-hash")
    assert out.stage.json("show", out.stage.spec)["windows"] == []
    spec = Path(out.stage.spec)
    spec.write_text(spec.read_text().replace("key: {columns: [id]}, ", ""))
    assert (
        "partitioner key-hash goes by it"
        in out.stage.json("show", out.stage.spec, code=2)["error"]["message"]
    )


def test_a_function_of_the_users_chooses_partitions(out: Out) -> None:
    """A user's partition function is a file in the spec's folder.

    A mistake in it is found before anything is read.
    """
    out.write("partitioner: function, partition_function: where.py:place")
    assert (
        "where.py"
        in out.stage.json("run", out.stage.spec, "--window", hour(0), code=2)["error"]["message"]
    )
    Path(out.stage.spec).with_name("where.py").write_text(
        "import numpy\ndef place(keys, rows, n):\n    return numpy.full(len(keys), n - 1)\n"
    )
    out.stage.json("run", out.stage.spec, "--window", hour(0))
    assert {message.partition() for message in read_committed(out.kafka, out.topic)} == {1}


def test_columns_that_are_not_there(out: Out) -> None:
    """A header of a column that rows don't have is refused before anything is read."""
    out.write("headers: {h: nothing}")
    reply = out.stage.json("run", out.stage.spec, "--window", hour(0), code=2)
    assert "nothing" in reply["error"]["message"]
