"""A log that ends below a frozen mark was cut off: by an unclean election of a leader,
or with a lost disk.

What it held behind its new end is gone, and what is written there from now on gets
offsets that windows have passed already: it is in no window. So a window that finds
nothing to read below such a mark must not pass as one without messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from windrow.ingest.errors import CutOffError
from windrow.ingest.kafka.retry import asked_until_believed, surely
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.label import Label, label_text
from windrow.ingest.model.source import Source
from windrow.ingest.ports.broker import Broker

T = TypeVar("T")

WAY_OUT = (
    "An unclean election of a leader, or a lost disk, cut the log off; what is written there until"
    " it has grown back is in no window. Set source.on_loss: skip to go on without it, or make the"
    " topic anew and see windrow rebase SPEC."
)


def cut_off(
    marks: Iterable[Mark], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[Mark, int]]:
    """The marks that lie above the end of their log (the high watermark), each with that end. Pure.

    What isn't asked for, or wasn't there when the mark was cut (`removed`), isn't judged.
    """
    return {
        m.tp: (m, ends[m.tp])
        for m in marks
        if m.how != "removed" and m.tp in ends and ends[m.tp] < m.offset
    }


def described(mark: Mark, end: int | None, label: Label) -> str:
    """What happened, in words that follow the topic-partition's name.

    `end`: of the log; None, if it has grown again.
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
    """Hold the marks of a frozen boundary against the ends of their logs.

    Args:
        broker: the cluster; asked for high watermarks, because an open transaction only
            holds the stable end back.
        source: with `on_loss` "skip" nothing is asked.
        label: the boundary's.
        suspects: those of its marks whose logs seem to end below them; usually none.

    Raises:
        CutOffError: names the first topic-partition, the mark and the end. One answer
            is no proof: see `ingest.kafka.retry`.
    """
    if not suspects or source.on_loss == "skip":
        return
    for _, (mark, end) in sorted(cut_off(suspects, broker.ends([m.tp for m in suspects])).items()):
        raise cut_off_error(mark, end, label)


def cut_off_error(mark: Mark, end: int | None, label: Label) -> CutOffError:
    """The refusal, with the way out."""
    words = described(mark, end, label)
    return CutOffError(
        words[0].upper() + words[1:], "plan", WAY_OUT, mark.topic, mark.partition, mark.offset
    )


def surely_cut_off(
    broker: Broker, marks: Sequence[Mark], pause: Callable[[float], None]
) -> list[tuple[Mark, int | None]]:
    """The marks that their logs don't reach any more, and those that they reach with
    other messages than these were; of these no end.

    In order, of topics that are there: asked for again, some time apart, before it is believed.
    """
    short = _too_short(broker, marks, pause)
    return sorted(
        [
            *short,
            *(
                (mark, None)
                for mark in _regrown(broker, set(marks) - {mark for mark, _ in short}, pause)
            ),
        ],
        key=_place,
    )


def _place(found: tuple[Mark, object]) -> Mark:
    return found[0]


def _regrown(broker: Broker, marks: Iterable[Mark], pause: Callable[[float], None]) -> list[Mark]:
    suspects = broker.regrown(
        sorted(mark for mark in marks if mark.how != "removed" and mark.offset > 0)
    )
    return surely(suspects, broker.regrown, pause)


def _too_short(
    broker: Broker, marks: Sequence[Mark], pause: Callable[[float], None]
) -> list[tuple[Mark, int | None]]:
    def look(
        found: dict[TopicPartition, tuple[Mark, int]],
    ) -> dict[TopicPartition, tuple[Mark, int]]:
        return cut_off([mark for mark, _ in found.values()], broker.ends(list(found)))

    suspects = surely(cut_off(marks, broker.ends([m.tp for m in marks])), look, pause)
    return [suspects[tp] for tp in sorted(suspects)]


def surely_gone(
    broker: Broker, missing: Sequence[str], pause: Callable[[float], None]
) -> Sequence[str]:
    """Those of missing topics that are still missing when asked again, some time apart:
    what a run gives up is never read again.
    """

    def look(names: Sequence[str]) -> Sequence[str]:
        there = broker.topics(names)
        return [name for name in names if name not in there]

    return surely(missing, look, pause)


def unless_cut_off(question: Callable[[], T], pause: Callable[[float], None]) -> T:
    """An answer; that a log was cut off is believed only when it is told again and again, some time apart.

    Raises:
        CutOffError: it was told each time.
    """  # noqa: E501
    return asked_until_believed(question, CutOffError, pause)
