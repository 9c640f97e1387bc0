"""What happened to a window, at first sight: a picture and three sentences, as Markdown.

The picture is an SVG in the text itself, because Dagster shows nothing else of its kind
beside a window's event. It is small: Dagster keeps each event for ever.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from windrow.assets.description import code
from windrow.ingest.admin.lag import Lag
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.receipt import Receipt, SplitCounts
from windrow.ingest.runner.context import Result
from windrow.ingest.source.enumerator.completeness import WindowState

COLOURS = {
    "committed": "#3a9d6a",
    "late": "#e3a008",
    "dead": "#d9435f",
    "missing": "#7a7f8a",
}
"""The parts of a bar, in order; each is readable on white and on black."""

_BARS = 16
"""Most topic-partitions in the picture, so that it stays below 4 kB."""

_WIDTH = 300
_ROW = 14


def summary(result: Result, lag: Lag | None, state: WindowState | None) -> str:
    """The Markdown of a window's event.

    Args:
        result: the result of the window's run.
        lag: the unread messages behind the window; None for an older window, or if
            unknown.
        state: the window's completeness; None for micro-batches, or if unknown.
    """
    receipt = result.committed.receipt
    bars = bars_of(receipt)
    words = f"{_rows(result)} {_problems(receipt)} {_goes_on(lag, state)}".strip()
    return f"{words}\n\n![{', '.join(COLOURS)}]({picture(bars)})" if bars else words


def _rows(result: Result) -> str:
    """Says what is in the table."""
    counts = result.committed.receipt.counts
    deletes = f" and {counted(counts.deletes, 'delete')}" if counts.deletes else ""
    return (
        f"**{counted(counts.rows, 'row')}**{deletes} of {counted(counts.read, 'message')} are"
        f" in the table{', by an earlier run' if result.recovered else ''}."
    )


def _problems(receipt: Receipt) -> str:
    """Says what isn't in the table, and why."""
    counts, reasons = receipt.counts, Counter[str]()
    for split in receipt.splits:
        reasons.update(dict(split.reasons))
    found = []
    if counts.dead:
        why = f" (most: {code(reasons.most_common(1)[0][0])})" if reasons else ""
        found.append(f"**{counted(counts.dead, 'dead letter')}**{why}")
    if counts.skipped:
        found.append(f"**{counted(counts.skipped, 'offset')} missing**, gone from the log")
    if counts.late:
        found.append(f"{counted(counts.late, 'message')} of earlier windows, late")
    if receipt.partial and not counts.skipped:
        found.insert(0, "**Messages may be missing**, see `partial`")
    return f"{'; '.join(found) or 'No message was refused, none is late or missing'}."


def _goes_on(lag: Lag | None, state: WindowState | None) -> str:
    """Says whether the window is complete, and what waits behind it."""
    found = []
    if state is not None:
        late = f"{counted(state.late_elsewhere, 'message')} of its hours came in later windows"
        hours = {
            "open": "More messages of its hours may come",
            "complete": "Its hours are over in every topic-partition",
            "late": f"Its hours are over, and {late}",
        }
        found.append(hours[state.state])
    if lag is not None:
        old = f", the first {timedelta(seconds=round(lag.seconds))} old" if lag.records else ""
        found.append(f"{counted(lag.records, 'offset')} behind it{old}")
    return f"{'; '.join(found)}." if found else ""


def counted(count: int, what: str) -> str:
    """A number with its noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def bars_of(receipt: Receipt) -> list[tuple[str, Mapping[str, int]]]:
    """The label and the parts of each topic-partition's bar: those with most to tell."""
    parts: dict[TopicPartition, Counter[str]] = {}
    for split in receipt.splits:
        tp = TopicPartition(split.topic, split.partition)
        parts.setdefault(tp, Counter()).update(_parts(split))
    matter = sorted(
        parts, key=lambda tp: (parts[tp]["dead"] + parts[tp]["missing"], parts[tp].total())
    )[-_BARS:]
    return [
        (f"{tp.topic[-20:]}[{tp.partition}]", part)
        for tp, part in sorted(parts.items())
        if tp in matter and part.total()
    ]


def _parts(split: SplitCounts) -> dict[str, int]:
    late = min(split.late, split.valid)
    return {
        "committed": split.valid - late,
        "late": late,
        "dead": split.dead,
        "missing": split.skipped,
    }


def picture(bars: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    """The bars as an SVG's `data:` address; the longest is the whole width.

    A part that is there is seen, however small.
    """
    most = max(sum(parts.values()) for _, parts in bars)
    left = 7 * max(len(label) for label, _ in bars) + 6
    lines: dict[str, list[str]] = {name: [] for name in COLOURS}
    texts = [_legend(left)]
    for row, (label, parts) in enumerate(bars, 2):
        at, y = left, row * _ROW
        for name in COLOURS:
            width = max(2, round(parts[name] / most * _WIDTH)) if parts[name] else 0
            lines[name] += [f"M{at} {y - 4}h{width}"] if width else []
            at += width
        texts += [_text(0, y, label), _text(at + 6, y, f"{sum(parts.values()):,}")]
    drawn = "".join(
        f'<path stroke="{COLOURS[name]}" d="{"".join(of)}"/>' for name, of in lines.items() if of
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + _WIDTH + 90}"'
        f' height="{(len(bars) + 1) * _ROW + 6}" font-family="monospace" font-size="11"'
        f' fill="#7a7f8a" stroke-width="9">{drawn}{"".join(texts)}</svg>'
    )
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


def _text(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}">{text}</text>'


def _legend(left: int) -> str:
    names = " ".join(f'<tspan fill="{of}">{name}</tspan>' for name, of in COLOURS.items())
    return _text(left, _ROW - 3, names)
