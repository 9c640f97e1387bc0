"""Logs that were cut off below a frozen mark.

An unclean leader election or a lost disk cuts a log off. All messages after its new end
are gone. New messages get offsets that windows have already passed, so they are in
no window. A window that has nothing to read below such a mark must therefore not pass
as an empty window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from windrow.ingest.errors import CutOffError
from windrow.ingest.kafka.timeouts import APART_SECONDS, TIMES, confirm
from windrow.ingest.model.boundary import Label, Mark, TopicPartition, label_text
from windrow.ingest.model.source import Source
from windrow.ingest.ports.broker import Broker

T = TypeVar("T")

WAY_OUT = (
    "An unclean leader election or a lost disk cut the log off. Messages that are written until it"
    " has grown back are in no window. Set source.on_loss: skip to go on without them, or recreate"
    " the topic and see windrow rebase SPEC."
)


def cut_off(
    marks: Iterable[Mark], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[Mark, int]]:
    """Finds the marks above the end of their log, and returns each with that end. Pure.

    A mark is skipped if its log's end isn't given, or if its topic was gone when the mark
    was made (`removed`).

    Args:
        marks: the marks of a boundary.
        ends: the high watermarks.
    """
    return {
        m.tp: (m, ends[m.tp])
        for m in marks
        if m.origin != "removed" and m.tp in ends and ends[m.tp] < m.offset
    }


def describe_cutoff(mark: Mark, end: int | None, label: Label) -> str:
    """Describes the cut-off in words that follow the topic-partition's name.

    Args:
        mark: the frozen mark.
        end: the end of the log; None if the log has grown again.
        label: the label of the mark's boundary.
    """
    if end is None:
        return (
            f"the log was cut off below offset {mark.offset} and has grown again since"
            f" {label_text(label)} was frozen"
        )
    return (
        f"the log ends at offset {end} now, below {mark.offset}, which it had reached when"
        f" {label_text(label)} was frozen"
    )


def refuse_cut_off(broker: Broker, source: Source, label: Label, suspects: Sequence[Mark]) -> None:
    """Compares the marks of a frozen boundary with the ends of their logs.

    Args:
        broker: the cluster. It is asked for high watermarks, because an open
            transaction holds back the stable end only.
        source: the source; with `on_loss` "skip" nothing is asked.
        label: the boundary's label.
        suspects: the boundary's marks whose logs seem to end below them; usually none.

    Raises:
        CutOffError: names the first topic-partition, its mark and the log's end. One
            answer is no proof: see `ingest.kafka.timeouts`.
    """
    if not suspects or source.on_loss == "skip":
        return
    for _, (mark, end) in sorted(cut_off(suspects, broker.ends([m.tp for m in suspects])).items()):
        raise cut_off_error(mark, end, label)


def cut_off_error(mark: Mark, end: int | None, label: Label) -> CutOffError:
    """Makes the error, with advice, for a mark of a log that was cut off."""
    words = describe_cutoff(mark, end, label)
    return CutOffError(
        words[0].upper() + words[1:], "plan", WAY_OUT, mark.topic, mark.partition, mark.offset
    )


def confirmed_cut_off(
    broker: Broker, marks: Sequence[Mark], pause: Callable[[float], None]
) -> list[tuple[Mark, int | None]]:
    """Returns the marks below which their logs were surely cut off, in order.

    Each mark comes with the end of its log, or with None if the log has grown again
    beyond the mark. An answer is believed only if it is the same several times, some time
    apart. The marks' topics must exist.
    """
    short = _too_short(broker, marks, pause)
    others = set(marks) - {mark for mark, _ in short}
    suspects = broker.diverged_marks(
        sorted(m for m in others if m.origin != "removed" and m.offset > 0)
    )
    diverged = confirm(suspects, broker.diverged_marks, pause)
    return sorted([*short, *((mark, None) for mark in diverged)])


def _too_short(
    broker: Broker, marks: Sequence[Mark], pause: Callable[[float], None]
) -> list[tuple[Mark, int | None]]:
    def look(
        short: dict[TopicPartition, tuple[Mark, int]],
    ) -> dict[TopicPartition, tuple[Mark, int]]:
        return cut_off([mark for mark, _ in short.values()], broker.ends(list(short)))

    suspects = confirm(cut_off(marks, broker.ends([m.tp for m in marks])), look, pause)
    return [suspects[tp] for tp in sorted(suspects)]


def confirmed_gone(
    broker: Broker, missing: Sequence[str], pause: Callable[[float], None]
) -> Sequence[str]:
    """Returns the missing topics that are still missing when the cluster is asked again.

    The cluster is asked several times, some time apart, because a run that gives up a
    topic never reads it again.
    """

    def look(names: Sequence[str]) -> Sequence[str]:
        existing = broker.topics(names)
        return [name for name in names if name not in existing]

    return confirm(missing, look, pause)


def repeat_while_cut_off(question: Callable[[], T], pause: Callable[[float], None]) -> T:
    """Asks a question, and asks it again while it raises CutOffError, a few times.

    A broker may report a log that is too short for a moment. So the error counts only if every
    answer has it, some time apart.

    Raises:
        CutOffError: the question raised it each time.
    """
    for _ in range(TIMES - 1):
        try:
            return question()
        except CutOffError:
            pause(APART_SECONDS)
    return question()
