"""Logs that were cut off: a log that ends below a frozen mark was, and one that ends at the
mark is whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from windrow.ingest.errors import CutOffError
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.source import OnLoss, Source, Topics
from windrow.ingest.ports.broker import TopicInfo
from windrow.ingest.source.enumerator.cutoff import (
    confirmed_cut_off,
    confirmed_gone,
    cut_off,
    cut_off_error,
    describe_cutoff,
    refuse_cut_off,
    repeat_while_cut_off,
)
from windrow.ingest.testing.broker import MemoryBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
M0, M1 = Mark("t", 0, 5, "settled"), Mark("t", 1, 5, "end")


class Elected(MemoryBroker):
    """A broker that answers with given high watermarks, one answer after the other, and records
    the questions.
    """

    def __init__(self, *answers: dict[TopicPartition, int]) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[list[TopicPartition]] = []

    def ends(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:  # type: ignore[override]
        """Returns the next answer."""
        self.requests.append(tps)
        ends = self.answers.pop(0)
        return {tp: ends[tp] for tp in tps if tp in ends}


@pytest.mark.parametrize(("end", "cut"), [(4, True), (5, False), (6, False)])
def test_a_log_that_reaches_the_mark_is_whole(end: int, cut: bool) -> None:
    """A log that ends at the mark is whole; one that ends an offset earlier was cut off."""
    assert cut_off([M0], {T0: end}) == ({T0: (M0, 4)} if cut else {})


def test_what_is_not_asked_for_or_was_removed_is_not_judged() -> None:
    """A mark without an end, and a mark of a removed topic, isn't judged: the end of its log is
    unknown.
    """
    assert cut_off([Mark("t", 0, 5, "removed"), M1], {T0: 0}) == {}
    assert cut_off([M0, M1], {T1: 2}) == {T1: (M1, 2)}


def refused(on_loss: OnLoss, *suspects: Mark, **ends: int) -> Elected:
    """Compares the marks with one answer, and returns the broker."""
    broker = Elected({TopicPartition("t", int(name[1:])): end for name, end in ends.items()})
    refuse_cut_off(broker, Source(Topics(("t",)), on_loss=on_loss), 7, suspects)
    return broker


def test_the_first_log_that_was_cut_off_is_refused() -> None:
    """The first topic-partition that was cut off is refused, with the mark, the end, the cause
    and the advice.
    """
    with pytest.raises(
        CutOffError,
        match=(
            r"^The log ends at offset 3 now, below 5, .* batch-000000007 was frozen .*on_loss: skip"
        ),
    ) as caught:
        refused("fail", M1, M0, t0=3, t1=2)
    assert (
        caught.value.stage,
        caught.value.topic,
        caught.value.partition,
        caught.value.offset,
    ) == (
        "plan",
        "t",
        0,
        5,
    )


def test_the_cluster_is_asked_only_of_suspects_and_only_if_it_matters() -> None:
    """The cluster is asked only if there are suspects, and not with on_loss: skip."""
    assert refused("fail").requests == []
    assert refused("skip", M0, t0=3).requests == []
    assert refused("fail", M0, M1, t0=5, t1=6).requests == [[T0, T1]]


def test_described_follows_a_name() -> None:
    """The description follows a topic-partition's name, and has the offsets and the label."""
    assert (
        describe_cutoff(M0, 3, 7)
        == "the log ends at offset 3 now, below 5, which it had reached when batch-000000007 was"
        " frozen"
    )
    assert (
        describe_cutoff(M0, None, 7)
        == "the log was cut off below offset 5 and has grown again since batch-000000007 was frozen"
    )


def test_three_answers_must_agree() -> None:
    """A cut is believed after three answers, some time apart, because a new leader may report a
    stale end.

    Only topic-partitions still below are asked for again.
    """
    pauses: list[float] = []
    broker = Elected({T0: 3, T1: 3}, {T0: 3, T1: 5}, {T0: 4})
    assert confirmed_cut_off(broker, [M1, M0], pauses.append) == [(M0, 4)]
    assert broker.requests == [[T1, T0], [T1, T0], [T0]]
    assert pauses == [1.5, 1.5]


def test_a_log_that_grew_back_in_time_is_whole() -> None:
    """A log that grows back within the three answers is whole.

    One that was never below is asked for once.
    """
    pauses: list[float] = []
    assert confirmed_cut_off(Elected({T0: 3}, {T0: 4}, {T0: 5}), [M0], pauses.append) == []
    assert confirmed_cut_off(Elected({T0: 5}), [M0], pauses.append) == []
    assert len(pauses) == 2


def test_logs_that_were_cut_off_are_told_in_order() -> None:
    """Logs that were cut off are returned by topic and partition."""
    three = Elected(*[{T0: 3, T1: 2}] * 3)
    assert confirmed_cut_off(three, [M1, M0], lambda _: None) == [(M0, 3), (M1, 2)]


class Diverged(Elected):
    """A broker with whole logs that answers with given marks of logs that were cut off and grew
    again.
    """

    def __init__(self, *answers: list[Mark]) -> None:
        super().__init__({})
        self.diverged_answers = list(answers)
        self.compared: list[Sequence[Mark]] = []

    def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
        """Returns the next answer."""
        self.compared.append(marks)
        return self.diverged_answers.pop(0)


def test_a_log_that_was_cut_off_and_grew_over_the_mark_is_told() -> None:
    """A log that was cut off and grew over the mark is reported if all answers say so.

    The start of a log, and a removed topic, aren't asked for.
    """
    pauses: list[float] = []
    first, removed = Mark("t", 2, 1, "end"), Mark("t", 4, 5, "removed")
    broker = Diverged([first, M1, M0], [first, M0], [first, M0])
    marks = [M1, first, Mark("t", 3, 0, "end"), removed, M0]
    assert confirmed_cut_off(broker, marks, pauses.append) == [(M0, None), (first, None)]
    assert broker.compared == [[M0, M1, first], [first, M1, M0], [first, M0]]
    assert pauses == [1.5, 1.5]


def test_a_log_that_ends_below_the_mark_has_not_grown_over_it() -> None:
    """Only logs that aren't too short are asked whether they grew over the mark, and all are
    returned in order.
    """
    broker = Diverged([M0], [M0], [M0])
    broker.answers = [{T1: 2}] * 3
    assert confirmed_cut_off(broker, [M1, M0], lambda _: None) == [(M0, None), (M1, 2)]
    assert broker.compared[0] == [M0]


class Listed(MemoryBroker):
    """A broker that answers with given topics, one answer after the other, and records the
    questions.
    """

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[Sequence[str]] = []

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """Returns the next answer."""
        self.requests.append(names)
        return {
            name: TopicInfo(name, "1", 1, compacted=False, retention_ms=None)
            for name in self.answers.pop(0)
        }


def test_a_topic_is_gone_if_it_is_missing_each_time() -> None:
    """A topic is gone if it is missing in each answer. Only missing topics are asked for again."""
    pauses: list[float] = []
    broker = Listed("b", "c")
    assert confirmed_gone(broker, ["a", "b", "c"], pauses.append) == ["a"]
    assert broker.requests == [["a", "b", "c"], ["a", "c"]]
    assert pauses == [1.5, 1.5]
    assert confirmed_gone(broker, [], pauses.append) == []
    assert len(pauses) == 2


@pytest.mark.parametrize(("failures", "waited"), [(0, 0), (2, 2), (3, 2)])
def test_a_question_is_repeated_until_each_answer_says_cut_off(failures: int, waited: int) -> None:
    """A question is repeated until the third CutOffError."""
    pauses: list[float] = []
    answers = [cut_off_error(M0, 3, 7)] * failures

    def question() -> str:
        if answers:
            raise answers.pop()
        return "answer"

    if failures == 3:
        with pytest.raises(CutOffError):
            repeat_while_cut_off(question, pauses.append)
    else:
        assert repeat_while_cut_off(question, pauses.append) == "answer"
    assert (answers, pauses) == ([], [1.5] * waited)
