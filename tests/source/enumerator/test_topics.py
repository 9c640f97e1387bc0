"""Discovery: a source's selection gives the topic-partitions; a missing or removed one is an
error.
"""

from __future__ import annotations

import pytest

from windrow.ingest.errors import DataLossError, IdentityError, SpecError, UnreachableError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen, label_text
from windrow.ingest.model.source import OnRemoved, Partitions, Pattern, Selection, Topics
from windrow.ingest.source.enumerator.topics import Discovered, discover, refuse_other_topics
from windrow.ingest.testing.broker import MemoryBroker


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker with the topics a-x (two partitions), a-y and b."""
    broker = MemoryBroker()
    broker.create_topic("a-x", 2)
    broker.create_topic("a-y", 1)
    broker.create_topic("b", 1)
    return broker


def discover_quietly(
    broker: MemoryBroker,
    selection: Selection,
    lower: Boundary | None = None,
    on_removed: OnRemoved = "fail",
) -> Discovered:
    """Returns the discovery."""
    return discover(broker, selection, lower, on_removed)


def make_boundary(broker: MemoryBroker, *names: str, origin: str = "settled") -> Boundary:
    """Returns a boundary that knows these topics."""
    topics = [TopicSeen(n, broker.topic(n).topic_id, broker.topic(n).partitions) for n in names]
    return Boundary.of(
        3,
        broker.cluster_id(),
        topics,
        [Mark(t.topic, p, 7, origin) for t in topics for p in range(t.partitions)],
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("selection", "tps"),
    [
        (Topics(("b", "a-x")), [("a-x", 0), ("a-x", 1), ("b", 0)]),
        (Pattern("a-."), [("a-x", 0), ("a-x", 1), ("a-y", 0)]),
        (Partitions((TopicPartition("b", 0), TopicPartition("a-x", 1))), [("a-x", 1), ("b", 0)]),
    ],
)
def test_each_way_to_select(
    broker: MemoryBroker, selection: Selection, tps: list[tuple[str, int]]
) -> None:
    """A selection is topics with all partitions, a pattern of whole names, or given
    topic-partitions, in order.

    A boundary has the number of all partitions.
    """
    got = discover_quietly(broker, selection)
    assert got.tps == [TopicPartition(*tp) for tp in tps]
    assert {t.topic: t.partitions for t in got.boundary_topics} == {
        name: broker.topic(name).partitions for name, _ in tps
    }


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Topics(("b", "c")), r"no topic c, or .* \(plan, c\)\. Fix the topic's name"),
        (Topics(("d", "b", "c")), r"no topic c, d, or .* \(plan, c\)\. Fix the topic's name"),
        (Pattern("a"), r"no topics matching a \(plan\)\. Check source\.topic_pattern"),
        (
            Partitions((TopicPartition("c", 0),)),
            r"no topic c, or .* \(plan, c\)\. Fix the topic's name",
        ),
        (
            Partitions((TopicPartition("a-x", 2),)),
            r"has 2 partitions, and 2 is .* \(plan, a-x\[2\]\)\. .*fix source\.partitions",
        ),
    ],
)
def test_what_never_was_is_a_mistake_in_the_spec(
    broker: MemoryBroker, selection: Selection, words: str
) -> None:
    """A topic or partition that never existed is refused by name with the advice, also beside a
    boundary with other topics.
    """
    with pytest.raises(SpecError, match=words):
        discover_quietly(broker, selection)
    if not isinstance(selection, Pattern):
        with pytest.raises(SpecError, match=words):
            discover_quietly(broker, selection, make_boundary(broker, "b"), "drop")


@pytest.mark.parametrize(
    "selection",
    [
        Topics(("a-x", "b")),
        Pattern(".*"),
        Partitions((TopicPartition("a-x", 0), TopicPartition("b", 0))),
    ],
)
def test_a_removed_topic_is_a_loss_or_left_out(broker: MemoryBroker, selection: Selection) -> None:
    """A removed topic is an error with its unread offsets and both remedies.

    With on_removed: drop the others are read.
    """
    lower = make_boundary(broker, "a-x", "b")
    broker.delete_topic("b")
    with pytest.raises(
        DataLossError,
        match=r"unread: of partition 0 from offset 7 on \(plan, b\)\. .*on_removed: drop.*rebase",
    ):
        discover_quietly(broker, selection, lower)
    assert "b" not in discover_quietly(broker, selection, lower, "drop").topics


def test_the_last_topic_of_a_pattern_may_be_dropped(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the last topic of a pattern is dropped, nothing is read.

    The cluster isn't asked for an empty list, which means all topics.
    """
    lower = make_boundary(broker, "b")
    broker.delete_topic("b")
    monkeypatch.delattr(MemoryBroker, "topics")
    assert discover_quietly(broker, Pattern("b"), lower, "drop").tps == []


@pytest.mark.parametrize(("partitions", "rest"), [(9, False), (10, False), (11, True)])
def test_of_a_removed_topic_some_partitions_are_told(
    broker: MemoryBroker, partitions: int, rest: bool
) -> None:
    """At most ten partitions of a removed topic are named, then "..."."""
    broker.create_topic("c", partitions)
    lower = make_boundary(broker, "b", "c")
    broker.delete_topic("c")
    with pytest.raises(DataLossError) as caught:
        discover_quietly(broker, Topics(("c",)), lower)
    unread = [f"{p} from offset 7 on" for p in range(min(partitions, 10))] + ["..."] * rest
    assert caught.value.message.endswith(
        f"What it held after boundary {label_text(3)} is unread: of partition {', '.join(unread)}"
    )
    assert (caught.value.stage, caught.value.topic) == ("plan", "c")


def test_of_a_removed_topic_that_was_not_cut_all_is_unread(broker: MemoryBroker) -> None:
    """For a removed topic without marks in the lower boundary, all is unread."""
    lower = make_boundary(broker, "b")
    lower = Boundary.of(lower.label, lower.cluster_id, lower.topics, [])
    broker.delete_topic("b")
    with pytest.raises(DataLossError, match="is unread: of partition all"):
        discover_quietly(broker, Topics(("b",)), lower)


def test_topics_are_left_out(broker: MemoryBroker) -> None:
    """Topics are left out with their topic-partitions, and the others stay."""
    discovered = discover_quietly(broker, Topics(("a-x", "a-y", "b")))
    rest = discovered.drop_topics({"a-y", "b", "never-there"})
    assert rest == Discovered(
        "memory", {"a-x": broker.topic("a-x")}, [TopicPartition("a-x", 0), TopicPartition("a-x", 1)]
    )
    assert discovered.drop_topics(()) == discovered


@pytest.mark.parametrize(
    "selection", [Topics(("a-x",)), Pattern("a-x"), Partitions((TopicPartition("a-x", 0),))]
)
def test_a_topic_that_the_spec_lets_go_is_not_removed(
    broker: MemoryBroker, selection: Selection
) -> None:
    """A topic that the spec no longer selects isn't a removed topic, whether it exists or not."""
    lower = make_boundary(broker, "a-x", "b")
    assert list(discover_quietly(broker, selection, lower).topics) == ["a-x"]
    broker.delete_topic("b")
    assert list(discover_quietly(broker, selection, lower).topics) == ["a-x"]


def test_a_pattern_does_not_miss_again_what_was_dropped_before(broker: MemoryBroker) -> None:
    """A pattern doesn't report a topic again that was dropped before."""
    lower = make_boundary(broker, "b", origin="removed")
    broker.delete_topic("b")
    assert "b" not in discover_quietly(broker, Pattern(".*"), lower).topics


def test_another_cluster_is_told_before_missing_topics(broker: MemoryBroker) -> None:
    """Another cluster is reported before missing topics."""
    with pytest.raises(
        IdentityError, match=r"cluster memory, and this is cluster other \(plan\)\. .*rebase"
    ):
        discover_quietly(MemoryBroker("other"), Topics(("b",)), make_boundary(broker, "b"))


def test_another_cluster_is_told_of_either_neighbour(broker: MemoryBroker) -> None:
    """Another cluster than either neighbour's is refused with both clusters and the boundary,
    also with equal topic ids.
    """
    discovered, old = discover_quietly(broker, Topics(("b",))), make_boundary(broker, "b")
    elsewhere = Boundary.of(old.label, "another", old.topics, old.marks)
    for neighbours in ((None, elsewhere), (elsewhere, None), (old, elsewhere)):
        with pytest.raises(
            IdentityError,
            match=rf"{label_text(3)} is of cluster another, and this is cluster memory \(plan\)\.",
        ):
            refuse_other_topics(discovered, *neighbours)


def test_a_topic_made_anew_is_refused_by_either_neighbour(broker: MemoryBroker) -> None:
    """A topic that was made again is refused by either neighbour.

    Topics that only one side knows don't count.
    """
    discovered, old = discover_quietly(broker, Topics(("a-x", "b"))), make_boundary(broker, "b")
    refuse_other_topics(discovered, None, old, make_boundary(broker, "a-y"))
    broker.recreate_topic("b")
    with pytest.raises(IdentityError, match=r"now has id .* \(plan, b\)\. .*rebase"):
        refuse_other_topics(discover_quietly(broker, Topics(("b",))), None, old)


def test_a_misspelt_topic_gets_near_names(broker: MemoryBroker) -> None:
    """A misspelt topic's error suggests a similar name, and says that windrow and reading don't
    create topics.
    """
    broker.create_topic("bank.payments", 1)
    with pytest.raises(SpecError, match=r"no topic bank\.paymets") as caught:
        discover_quietly(broker, Topics(("bank.paymets",)))
    assert "Is bank.payments meant? " in caught.value.advice
    assert "auto.create.topics.enable" in caught.value.advice
    assert "bank.paymets" not in broker.names()
    with pytest.raises(SpecError) as caught:
        discover_quietly(broker, Topics(("entirely-other",)))
    assert caught.value.advice.startswith("Fix the topic's name or the cluster's address (")
    assert "TOPIC and --bootstrap" in caught.value.advice


def test_at_most_two_near_names_are_told_for_each(broker: MemoryBroker) -> None:
    """At most two similar names are suggested per missing topic, each once."""
    for name in ("orders-v1", "orders-v2", "orders-v3"):
        broker.create_topic(name, 1)
    for missing in (("orders-v",), ("orders-v", "orders-v.")):
        with pytest.raises(SpecError, match=r"Is orders-v\d or orders-v\d meant\? Fix "):
            discover_quietly(broker, Topics(missing))


def test_names_that_are_not_told_hide_no_missing_topic(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the topics' names can't be listed, the error is still that the topic doesn't exist."""

    def silent() -> list[str]:
        raise UnreachableError("no answer", "plan", "Try again.")

    monkeypatch.setattr(broker, "names", silent)
    with pytest.raises(SpecError, match="no topic c"):
        discover_quietly(broker, Topics(("c",)))
