"""Each feature works with the rights that docs/permissions.md names, and needs each of them."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.contracts.dead_topic_contract import letters
from tests.contracts.reading import batches_of
from tests.kafka.produce import create_topic
from tests.permissions.features import KAFKA, KafkaFeature
from tests.permissions.guarded import PASSWORD, GuardedBroker, grant
from tests.sinks.kafka.world import KafkaBoth, options_of
from windrow.ingest.cli import doctor
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties
from windrow.ingest.kafka.dead_topic import KafkaDeadTopic
from windrow.ingest.kafka.rights import Right
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.source.reader.reader import KafkaReader
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window

pytestmark = pytest.mark.broker
Client = dict[str, object]

COMMAND = re.compile(
    r"kafka-acls\.sh --bootstrap-server \S+ --add --allow-principal User:NAME --operation (\w+)"
    r" --(topic|group|transactional-id|cluster)(?: ([^\s;.][^\s;]*?))?( --resource-pattern-type"
    r" prefixed)?(?=[;.]? |[;.]?$)"
)
"""A command that an error names."""


class Scene:
    """Topics and names for one case, and a use of each feature by some client.

    Attributes:
        names: the names, by their placeholders in the table of features.
    """

    def __init__(self, broker: GuardedBroker, feature: KafkaFeature, staging: Path) -> None:
        end = uuid.uuid4().hex[:8]
        self.broker, self.staging = broker, str(staging)
        self.names = {"GROUP": f"readers-{end}", "PREFIX": f"windrow-{end}"}
        for name in ("TOPIC", "TARGET", "DEAD"):
            self.names[name] = create_topic(broker.bootstrap, name=f"{name.lower()}-{end}")
        self.names["CONTROL"] = f"{self.names['TARGET']}.windrow"
        self.produce()
        if feature.name != "sink_makes_control":
            compacted = {"cleanup.policy": "compact"}
            create_topic(broker.bootstrap, config=compacted, name=self.names["CONTROL"])
        if feature.name == "verify":
            self.sink({}, broker.bootstrap).prepare()
            commit_window(self.sink({}, broker.bootstrap), 0)

    def produce(self) -> None:
        producer = ck.Producer({"bootstrap.servers": self.broker.bootstrap})
        producer.produce(self.names["TOPIC"], b"{}", timestamp=1_767_225_600_000)
        assert producer.flush(20) == 0

    def cluster(self, client: Client) -> KafkaBroker:
        """Returns questions to the cluster."""
        return KafkaBroker(self.broker.guarded, client)

    def sink(self, client: Client, bootstrap: str, delivery: str = "exactly-once") -> KafkaBoth:
        """Returns the Kafka table."""
        options = options_of(
            self.names["TARGET"],
            self.staging,
            prefix=self.names["PREFIX"],
            delivery=delivery,
        )
        return KafkaBoth(ClusterConnection(bootstrap, client), options, ROWS)

    # ----------------------------------------------------------------------------- the features

    def read(self, client: Client) -> None:
        """Discovers a topic, resolves offsets, reads timestamps and messages."""
        topic, broker = self.names["TOPIC"], self.cluster(client)
        tp = TopicPartition(topic, 0)
        described = broker.topic(topic)
        assert broker.names() == [topic]
        assert broker.log_starts([tp]) == {tp: 0}
        end = broker.stable_ends([tp])[tp].offset
        assert broker.first_at_or_after([tp], datetime(2026, 1, 1, tzinfo=UTC))[tp]
        assert [list(stamps.offsets) for stamps in broker.stamps(tp, 0, end)] == [[0]]
        properties = consumer_properties(self.broker.guarded, client)
        plan = ReadPlan(broker.cluster_id(), {topic: described.topic_id}, "fail")
        (batch,) = batches_of(KafkaReader(properties, plan), Split(topic, 0, 0, end))
        assert batch.num_rows == 1

    def start_at_group(self, client: Client) -> None:
        """Also reads the offsets of a group."""
        self.read(client)
        tp = TopicPartition(self.names["TOPIC"], 0)
        assert self.cluster(client).committed_offsets(self.names["GROUP"], [tp]) == {tp: None}

    def offsets_group(self, client: Client) -> None:
        """Also commits offsets to a group."""
        self.read(client)
        tp = TopicPartition(self.names["TOPIC"], 0)
        (reason,) = self.cluster(client).alter_offsets(self.names["GROUP"], {tp: 1}).values()
        if reason is not None:  # a run shows it as a warning
            raise SpecError(reason, "commit", "")

    def dead_letters(self, client: Client) -> None:
        """Publishes a dead letter."""
        topic = KafkaDeadTopic(self.broker.guarded, client, self.names["DEAD"])
        topic.refuse_unwritable()
        topic.publish(window(0), [letters(42)])

    def sink_makes_control(self, client: Client) -> None:
        """Publishes a window; makes the control topic first, if it is missing."""
        self.commit(client, "exactly-once")

    sink_with_control = sink_makes_control

    def sink_without_transactions(self, client: Client) -> None:
        """Publishes a window without transactions."""
        self.commit(client, "at-least-once")

    def commit(self, client: Client, delivery: str) -> None:
        sink = self.sink(client, self.broker.guarded, delivery)
        sink.refuse_unwritable()
        sink.prepare()
        commit_window(sink, 0)

    def verify(self, client: Client) -> None:
        """Reads the receipts, and the published rows."""
        audit = self.sink(client, self.broker.guarded).audit()
        (committed,) = audit.receipts()
        rows = sum(batch.num_rows for batch in audit.contents(window(0)))
        assert rows == sum(split.rows for split in committed.receipt.splits)


def commit_window(sink: KafkaBoth, number: int) -> None:
    """Publishes a window."""
    receipt, staged = staged_receipt(sink, number)
    assert isinstance(sink.commit(receipt, staged), Done)


def granted_by(text: str) -> list[Right]:
    """Returns the rights that the commands in a text grant."""
    return [
        Right(operation, resource, name or "", bool(prefixed))  # type: ignore[arg-type]
        for operation, resource, name, prefixed in COMMAND.findall(text)
    ]


CASES = [
    pytest.param(feature, lacking, id=f"{feature.name}-without-{lacking.operation}-{lacking.name}")
    for feature in KAFKA
    for lacking in feature.rights
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("feature", "lacking"), CASES)
def test_each_right_is_needed_and_all_are_enough(
    guarded: GuardedBroker, tmp_path: Path, feature: KafkaFeature, lacking: Right
) -> None:
    """A client that lacks one right of a feature is refused by an error that names the right.

    The command of the error grants it, and the feature works: no further right is needed.
    """
    scene = Scene(guarded, feature, tmp_path)
    (missing,) = KafkaFeature("", "", (lacking,)).named(**scene.names)
    rights = feature.named(**scene.names)
    use: Callable[[Client], None] = getattr(
        scene, "sink_with_control" if feature.name == "sink" else feature.name
    )
    client = guarded.user(right for right in rights if right != missing)
    with pytest.raises(SpecError) as caught:
        use(client)
    assert str(missing) in caught.value.message
    assert granted_by(str(caught.value)) == [missing]
    grant(guarded.bootstrap, str(client["sasl.username"]), granted_by(str(caught.value)))
    use(client)


SPEC = """\
type: windrow.dagster.KafkaTable
attributes:
  id: orders
  source:
    topic: {TOPIC}
    bootstrap_servers: {servers}
    offsets_group: {GROUP}
    client: {client}
  window: {{grid: hourly, start: 2026-01-01T00:00:00Z}}
  decode: {{format: raw}}
  dead_letters: {{topic: {DEAD}}}
  sink:
    kind: kafka
    topic: {TARGET}
    bootstrap_servers: {servers}
    client: {client}
    staging: {staging}
    transactional_id_prefix: {PREFIX}
  state: {staging}/ledger.db
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("sink", ["sink", "sink_makes_control"])
def test_doctor_names_all_rights_that_it_can_ask_for(
    guarded: GuardedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """A client without any right gets all rights of the page from the findings of doctor.

    It gets no other, and doctor finds no fault then. Doctor can't ask for transactional ids.
    """
    monkeypatch.setattr(doctor, "java_problem", lambda: None)
    by_name = {feature.name: feature for feature in KAFKA}
    scene = Scene(guarded, by_name[sink], tmp_path)
    if sink == "sink":  # and from an empty topic, of which no message can be read
        scene.names["TOPIC"] = create_topic(guarded.bootstrap)
    used = ("read", "offsets_group", "dead_letters", sink)
    wanted = {right for name in used for right in by_name[name].named(**scene.names)}
    client, got = guarded.user([]), set[Right]()
    spec = tmp_path / "orders.yaml"
    names = {**scene.names, "servers": guarded.guarded, "staging": scene.staging}
    monkeypatch.setenv("GUARDED_PASSWORD", PASSWORD)
    reference = {**client, "sasl.password": {"env": "GUARDED_PASSWORD"}}
    spec.write_text(SPEC.format(client=json.dumps(reference), **names))
    for _ in range(4):
        checks = list(doctor.examine(spec))
        failed = [check for check in checks if check.level == "fail"]
        new = {right for check in failed for right in granted_by(check.fix)}
        if not new:
            break
        grant(guarded.bootstrap, str(client["sasl.username"]), new - got)
        got |= new
    assert failed == []
    assert got == {right for right in wanted if right.resource != "transactional-id"}
