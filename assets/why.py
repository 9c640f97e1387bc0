"""Why a window is not complete, in sentences for who has to act: which topic-partition
keeps it open, since when, and what to do.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from windrow.assets.describing import code
from windrow.ingest.model.boundary import Boundary, How, TopicPartition
from windrow.ingest.model.label import instant
from windrow.ingest.source.enumerator.completeness import Completeness

_FEW = 3

_REASONS: Mapping[How, tuple[str, str]] = {
    "end": (
        "when the newest window was cut, its log held no message from after that",
        (
            "The next window's run looks again. If it is idle and may be, set `window.idle:"
            " exempt`; if it may not, look at its producer."
        ),
    ),
    "open": (
        "a transaction was open there when the newest window was cut",
        "End the transaction of its producer; the next window's run looks again.",
    ),
    "log_start": (
        "retention had taken what would prove more",
        "The next window's run looks again; run windows sooner, or keep messages longer.",
    ),
    "clamped": (
        "the newest cut was moved to a neighbour's, which proves nothing by itself",
        "The next window's run looks again.",
    ),
    "position": (
        "the pipeline begins there, at a position of its spec",
        "The next window's run looks again.",
    ),
}
"""Of each way in which a boundary's offset was found and that proves nothing: why, and
what to do.
"""

_UNKNOWN = ("no boundary proves more", "The next window's run looks again.")


def overdue_words(judgement: Completeness, overdue: Sequence[str], newest: Boundary) -> str:
    """Why windows are open past their time.

    Args:
        judgement: how complete the windows are, and what holds them.
        overdue: the keys of those that are open past their time.
        newest: the newest frozen boundary, which says what was last seen of each topic-partition.
    """
    open_past_time = (
        f"{_few(overdue)} {'are' if len(overdue) > 1 else 'is'} not complete, though delay and"
        " max_wait are over."
    )
    marks = newest.by_tp()
    by_reason: dict[tuple[str, str], list[TopicPartition]] = {}
    for tp in judgement.holding:
        reason = _REASONS.get(marks[tp].how, _UNKNOWN) if tp in marks else _UNKNOWN
        by_reason.setdefault(reason, []).append(tp)
    return " ".join(
        [
            open_past_time,
            *(_holding(tps, judgement.watermark, *reason) for reason, tps in by_reason.items()),
        ]
    )


def late_words(late: Mapping[str, int]) -> str:
    """Which windows were complete, and yet later ones hold messages of their hours;
    `late`: how many, by window.
    """
    count, whose = sum(late.values()), "its" if len(late) == 1 else "their"
    which = (
        f"1 message of {whose} hours is"
        if count == 1
        else f"{count:,} messages of {whose} hours are"
    )
    return (
        f"{_few(list(late))}: {which} in later windows. Nothing is lost: sums by hour go by the"
        " message's timestamp; a longer `window.delay` waits for such messages."
    )


def _holding(tps: Sequence[TopicPartition], watermark: datetime | None, why: str, do: str) -> str:
    names = _few([code(str(tp)) for tp in tps])
    since = "at no window yet" if watermark is None else f"at {instant(watermark)}"
    return f"{names} {'hold' if len(tps) > 1 else 'holds'} the watermark {since}: {why}. {do}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more
