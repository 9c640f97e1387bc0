"""A rebase after a topic was made again: unchanged topics go on, and the others begin again."""

from __future__ import annotations

import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.source import AtLabel, Earliest, Latest, Partitions, Source, Topics
from windrow.ingest.source.enumerator.rebased import rebase_at
from windrow.ingest.testing.broker import MemoryBroker

SOURCE = Source(Topics(("kept", "anew")), AtLabel())
ANEW = [TopicPartition("anew", p) for p in range(2)]


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker with the topics kept, anew and gone."""
    broker = MemoryBroker()
    for name in ("kept", "anew", "gone"):
        broker.create_topic(name, 2)
    return broker


@pytest.fixture
def newest(broker: MemoryBroker) -> Boundary:
    """A boundary at offset 7 of all topics."""
    topics = [TopicSeen(n, broker.topic(n).topic_id, 2) for n in broker.names()]
    return Boundary.of(
        4,
        broker.cluster_id(),
        topics,
        [Mark(t.topic, p, 7, "batch") for t in topics for p in range(2)],
    )


def recreate(broker: MemoryBroker, messages: int) -> None:
    """Makes the topic `anew` again, with messages, and deletes `gone`."""
    broker.recreate_topic("anew", 2)
    broker.delete_topic("gone")
    for _ in range(messages):
        broker.produce(ANEW[1], b"")


def test_a_topic_made_anew_begins_at_0_and_the_others_go_on(
    broker: MemoryBroker, newest: Boundary
) -> None:
    """A topic that was made again begins at 0 in every partition, later ones too, and the
    others go on.

    A missing one is left out. The rebase reports each change.
    """
    recreate(broker, 3)
    rebase = rebase_at(broker, SOURCE, newest, None)
    cuts = {
        tp: rebase.boundary.cut(tp)
        for tp in [
            *ANEW,
            TopicPartition("anew", 5),
            TopicPartition("kept", 1),
            TopicPartition("gone", 0),
        ]
    }
    assert [None if mark is None else mark.offset for mark in cuts.values()] == [0, 0, 0, 7, None]
    assert rebase.boundary.by_topic()["anew"].topic_id == broker.topic("anew").topic_id
    assert rebase.boundary.label == newest.label
    assert [sentence.split()[0] for sentence in rebase.changes] == ["anew", "gone"]
    assert "offset 0" in rebase.changes[0]


def test_a_topic_made_anew_begins_where_it_is_told(broker: MemoryBroker, newest: Boundary) -> None:
    """The start of a rebase is only for new topics, and only for the partitions that are read."""
    recreate(broker, 3)
    begun = {m.tp: m for m in rebase_at(broker, SOURCE, newest, Latest()).boundary.marks}
    assert [(begun[tp].offset, begun[tp].origin) for tp in ANEW] == [
        (0, "position"),
        (3, "position"),
    ]
    assert begun[TopicPartition("kept", 0)] == Mark("kept", 0, 7, "batch")
    one_partition = Source(Partitions((ANEW[1],)))
    assert ANEW[0] not in rebase_at(broker, one_partition, newest, Latest()).boundary.by_tp()


def test_another_cluster_must_be_told_where_to_begin(newest: Boundary) -> None:
    """On another cluster a start must be given, because all topics are new there, and their
    messages may be in the table already.
    """
    other_cluster = MemoryBroker("other")
    other_cluster.create_topic("kept", 1)
    other_cluster.create_topic("anew", 1)
    other_cluster.produce(TopicPartition("kept", 0), b"")
    with pytest.raises(SpecError, match=r"cluster is other now.*position"):
        rebase_at(other_cluster, SOURCE, newest, None)
    rebase = rebase_at(other_cluster, SOURCE, newest, Latest())
    assert (rebase.boundary.cluster_id, rebase.boundary.label) == ("other", 4)
    assert [(m.topic, m.offset, m.origin) for m in rebase.boundary.marks] == [
        ("anew", 0, "position"),
        ("kept", 1, "position"),
    ]
    assert "gone is not read in the new cluster" in rebase.changes[-1]


def test_where_nothing_has_changed_there_is_nothing_to_rebase(
    broker: MemoryBroker, newest: Boundary
) -> None:
    """Without a change a rebase is refused, also with a start: it can't move a working pipeline."""
    with pytest.raises(SpecError, match="nothing to rebase"):
        rebase_at(broker, SOURCE, newest, Earliest())


def test_each_change_is_told_with_both_ids(broker: MemoryBroker, newest: Boundary) -> None:
    """Each change is reported with both ids, the chosen position, and the first unread offsets
    of the old topic.
    """
    old = broker.topic("anew").topic_id
    recreate(broker, 3)
    now = broker.topic("anew").topic_id
    rebase = rebase_at(broker, SOURCE, newest, Latest())
    changes = [
        f'anew had id {old} and has id {now} now: it begins at the position {{"type":"latest"}}.',
        "gone is not in the cluster any more, and is left out.",
    ]
    assert rebase.changes == tuple(
        f"{change} Messages of the old topic from {name}[0]@7, {name}[1]@7 on were read by no"
        " window, and are lost, if it had any."
        for name, change in zip(("anew", "gone"), changes, strict=True)
    )
    assert rebase.boundary.cluster_id == broker.cluster_id()
    assert rebase.boundary.by_topic()["anew"] == TopicSeen("anew", now, 2)
    assert rebase_at(broker, SOURCE, newest, None).boundary.by_topic()["anew"] == TopicSeen(
        "anew", now, 0
    )


def test_another_clusters_topics_are_told(newest: Boundary) -> None:
    """Each topic of another cluster is reported with its id and its start."""
    other_cluster = MemoryBroker("other")
    ids = {name: other_cluster.create_topic(name, 1).topic_id for name in ("anew", "kept")}
    rebase = rebase_at(other_cluster, SOURCE, newest, Earliest())
    assert rebase.changes == (
        "The cluster is other now, and boundary batch-000000004 is of cluster memory.",
        *(
            f"{name} has id {ids[name]} in the new cluster: it begins at the position"
            ' {"type":"earliest"}.'
            for name in ("anew", "kept")
        ),
        "gone is not read in the new cluster, and is left out.",
    )


def test_why_there_is_no_rebase_is_told_with_what_to_do(
    broker: MemoryBroker, newest: Boundary
) -> None:
    """A refused rebase has the stage `plan` and the advice."""
    for cluster, advice in (
        (broker, "Run the windows as they are."),
        (MemoryBroker("other"), "Give the position to go on from: windrow rebase SPEC --start"),
    ):
        with pytest.raises(SpecError) as caught:
            rebase_at(cluster, SOURCE, newest, None)
        assert caught.value.stage == "plan"
        assert caught.value.advice.startswith(advice)
