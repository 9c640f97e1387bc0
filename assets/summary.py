"""The summary of a window's event, as Markdown: a picture and three sentences.

The picture is an SVG within the text, because Dagster has no other way to show one with a
window's event. Dagster shows a text of up to `LONGEST_TEXT` characters, and a link instead
of a longer text. So bars are left out until the text is short enough, then the picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from windrow.assets.dagster_internals import LONGEST_TEXT
from windrow.assets.description import code
from windrow.ingest.admin.lag import Lag
from windrow.ingest.errors import format_count
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.receipt import Receipt, SplitCounts
from windrow.ingest.runner.context import Result
from windrow.ingest.source.enumerator.completeness import WindowState

COLOURS = {
    "committed": "green",
    "late": "orange",
    "dead": "red",
    "lost": "gray",
}
"""The parts of a bar, in order. Each colour is readable on white and on black."""

_BARS = 16
"""The maximum number of topic-partitions in the picture."""

_WIDTH = 300
_ROW = 14
_ESCAPED = str.maketrans({"<": "%3C", ">": "%3E"})
"""Characters that an address between `<` and `>` must not contain."""


def summary(result: Result, lag: Lag | None, state: WindowState | None) -> str:
    """Returns the Markdown of a window's event.

    Args:
        result: the result of the window's run.
        lag: the unread messages after the window; None for an older window, or if unknown.
        state: the window's completeness; None for micro-batches, or if unknown.
    """
    receipt = result.committed.receipt
    words = f"{_rows(result)} {_problems(receipt)} {_goes_on(lag, state)}".strip()
    pictures = (
        picture(bars) for max_bars in range(_BARS, 0, -1) if (bars := bars_of(receipt, max_bars))
    )
    texts = (f"{words}\n\n![topic-partitions](<{address}>)" for address in pictures)
    return next((text for text in texts if len(text) <= LONGEST_TEXT), words)


def _rows(result: Result) -> str:
    """Describes the rows in the table."""
    receipt, counts = result.committed.receipt, result.committed.receipt.counts
    others = (
        (counts.rows - receipt.table_rows, "row", "expired"),
        (counts.deletes, "delete", "applied"),
        (counts.filtered, "message", "filtered out"),
        (counts.dropped, "message", "without a value dropped"),
    )
    words = "".join(
        f", {format_count(count, noun)} {done}" for count, noun, done in others if count
    )
    return (
        f"In the table: **{format_count(receipt.table_rows, 'row')}** of"
        f" {format_count(counts.read, 'message')}"
        f"{words}{', by an earlier run' if result.recovered else ''}."
    )


def _problems(receipt: Receipt) -> str:
    """Describes the messages that aren't in the table, and the reasons."""
    counts, reasons = receipt.counts, receipt.reasons
    problems = []
    if counts.dead:
        reason = f" (most: {code(reasons.most_common(1)[0][0])})" if reasons else ""
        problems.append(f"**{format_count(counts.dead, 'dead letter')}**{reason}")
    if counts.skipped:
        problems.append(f"**{format_count(counts.skipped, 'offset')} lost**, gone from the log")
    if counts.late:
        time = "" if receipt.event_time is None else f" by {code(receipt.event_time)}"
        problems.append(f"{format_count(counts.late, 'message')} of earlier windows{time}, late")
    if receipt.partial and not counts.skipped:
        problems.insert(0, "**Messages may be lost**, see `partial`")
    nothing = f"No message was {'' if receipt.window.span is None else 'late, '}refused or lost"
    return f"{'; '.join(problems) or nothing}.{_describe_ignored(receipt)}"


def _describe_ignored(receipt: Receipt) -> str:
    """Describes how many messages have fields that no column is for."""
    messages = format_count(receipt.counts.ignored, "message")
    return "".join(
        f" **{messages}** with fields that no column is for (most: {code(name)})."
        for name, _ in receipt.ignored_fields.most_common(1)
    )


def _goes_on(lag: Lag | None, state: WindowState | None) -> str:
    """Describes whether the window is complete, and how many messages after it are unread."""
    words = ""
    if state is not None:
        late = f"{format_count(state.late_elsewhere, 'message')} of its hours came in later windows"
        hours = {
            "open": "Not complete: more messages of its hours may come",
            "complete": "Complete: its hours are over in every topic-partition",
            "late": f"Late: its hours are over, and {late}",
        }
        words = f"{hours[state.state]}. "
    if lag is not None:
        old = f", the oldest {_age(lag.seconds)} old" if lag.records else ""
        words += f"Behind it, unread then: {format_count(lag.records, 'offset')}{old}."
    return words


def _age(seconds: float) -> str:
    """Returns a duration in its two largest units: `21 h 30 min`."""
    remaining, parts = round(seconds), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def bars_of(receipt: Receipt, max_bars: int) -> list[tuple[str, Mapping[str, int]]]:
    """Returns label and parts of the bars: the topic-partitions with the most problems or messages.

    Labels name the topic only if there are several topics.
    """
    parts: dict[TopicPartition, Counter[str]] = {}
    for split in receipt.splits:
        tp = TopicPartition(split.topic, split.partition)
        parts.setdefault(tp, Counter()).update(_parts(split))
    several = len({tp.topic for tp in parts}) > 1
    matter = sorted(
        parts, key=lambda tp: (parts[tp]["dead"] + parts[tp]["lost"], parts[tp].total())
    )[-max_bars:]
    return [
        (f"{tp.topic[-20:]}[{tp.partition}]" if several else f"{tp.partition}", part)
        for tp, part in sorted(parts.items())
        if tp in matter and part.total()
    ]


def _parts(split: SplitCounts) -> dict[str, int]:
    late = min(split.late, split.valid)
    return {
        "committed": split.valid - late,
        "late": late,
        "dead": split.dead,
        "lost": split.skipped,
    }


def picture(bars: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    """Returns the bars as an SVG's `data:` address. The longest bar has the whole width.

    A part that isn't zero is always visible.
    """
    longest = max(sum(parts.values()) for _, parts in bars)
    labels = [f"{label}: {sum(parts.values()):,}" for label, parts in bars]
    label_width = 7 * max(map(len, labels)) + 6
    lines: dict[str, str] = dict.fromkeys(COLOURS, "")
    for row, (_, parts) in enumerate(bars, 2):
        bar_start = label_width
        for name in COLOURS:
            width = max(2, round(parts[name] / longest * _WIDTH)) if parts[name] else 0
            lines[name] += f"M{bar_start} {row * _ROW - 4}h{width}" if width else ""
            bar_start += width
    path_by_name = {name: path for name, path in lines.items() if path}
    # texts are gray anyway, and each character may cost a bar
    legend = " ".join(
        name if COLOURS[name] == "gray" else f"<tspan fill='{COLOURS[name]}'>{name}</tspan>"
        for name in path_by_name
    )
    drawn = "".join(
        f"<path stroke='{COLOURS[name]}' d='{path}'/>" for name, path in path_by_name.items()
    )
    texts = "".join(f"<text y='{row * _ROW}'>{label}</text>" for row, label in enumerate(labels, 2))
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{label_width + _WIDTH + 20}'"
        f" height='{(len(bars) + 1) * _ROW + 6}'"
        f" style='font:11px monospace;fill:gray;stroke-width:9'>"
        f"<text y='11'>{legend}</text>{drawn}{texts}</svg>"
    )
    return f"data:image/svg+xml,{svg.translate(_ESCAPED)}"
