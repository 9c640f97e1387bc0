"""Holds the sink's receipts against each other, the ledger, the table's rows and the topic. Reads only.

The comparisons are pure functions from values to findings; `verify` fetches the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from ingest.errors import RefusedError, UnreachableError
from ingest.model import Boundary, Committed, Plan, Receipt, TopicPartition, Window, covered, instant
from ingest.ports import Broker, Ledger, Sink, TopicInfo

Level = Literal["wrong", "unchecked", "info"]
About = Literal["receipts", "windows", "ledger", "table", "topic"]

REBUILD = "Rebuild it from the receipts: windrow doctor SPEC --rebuild-ledger."


class Finding(msgspec.Struct, frozen=True):
    """One thing that verification has to say. `wrong` asks for a person; `unchecked` could not be looked at; `info` is for knowing."""

    level: Level
    about: About
    what: str
    do: str = ""
    window: str | None = None


class Held(msgspec.Struct, frozen=True, order=True):
    """What the table holds of one topic-partition in one window: rows, different offsets, the lowest and the highest."""

    topic: str
    partition: int
    rows: int
    offsets: int
    lowest: int
    highest: int


class Rows(msgspec.Struct, frozen=True):
    """The questions to the table, apart from its receipts. `held` and `dead` raise UnreachableError if the data can't be read.

    `dead` is the number of a window's dead letters that one attempt left.
    """

    windows: Callable[[], set[str]]
    held: Callable[[Window], list[Held]]
    dead: Callable[[Window, str], int]


class Verified(msgspec.Struct, frozen=True):
    """How many windows were looked at, and what was found."""

    windows: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """1 if anything is wrong, 3 if something could not be looked at, else 0."""
        levels = {f.level for f in self.findings}
        return 1 if "wrong" in levels else 3 if "unchecked" in levels else 0


def verify(pipeline: str, sink: Sink, ledger: Ledger, broker: Broker, rows: Rows) -> Verified:
    """All comparisons of one pipeline. What can't be reached is a finding, so that the rest is still told."""
    try:
        committed = sorted((c for c in sink.receipts() if c.receipt.window.pipeline == pipeline), key=lambda c: c.receipt.window)
    except RefusedError as error:
        return Verified(0, 0, (Finding("wrong", "receipts", error.what, error.do),))
    receipts = [c.receipt for c in committed]
    findings = [*compare_receipts(receipts), *tiles(receipts)]
    findings += _reached("ledger", lambda: _ledger(pipeline, committed, ledger))
    findings += _reached("table", lambda: _table(receipts, rows))
    findings += _reached("table", lambda: [f for r in receipts for f in compare_dead(r, rows.dead(r.window, r.attempt))])
    findings += _reached("topic", lambda: _topic(receipts, broker))
    return Verified(len(committed), sum(r.counts.valid for r in receipts), tuple(findings))


def _reached(about: About, look: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return look()
    except UnreachableError as error:
        return [Finding("unchecked", about, error.what, error.do)]
    except RefusedError as error:
        return [Finding("wrong", about, error.what, error.do)]


# --------------------------------------------------------------------------------------------------------------------- receipts


def compare_receipts(receipts: Sequence[Receipt]) -> list[Finding]:
    """Each receipt in itself, and no offset under two windows. Pure."""
    findings = [f for r in receipts for f in _one_receipt(r)]
    ranges = sorted((c, r.window.key) for r in receipts for c in covered(r.plan))
    for (left, one), (right, two) in pairwise(ranges):
        if left.overlaps(right):
            place = f"partition {left.partition} of topic {left.topic_id}"
            what = f"offset {right.start} of {place} is under two windows: {one} and {two}"
            findings.append(Finding("wrong", "receipts", what, "Replay neither before it is known which of them holds the rows.", two))
    return findings


def _one_receipt(receipt: Receipt) -> list[Finding]:
    counts, length = receipt.counts, sum(s.stop - s.start for s in receipt.plan.splits)
    planned = Counter((s.topic, s.partition, s.start, s.stop) for s in receipt.plan.splits)
    counted = Counter((s.topic, s.partition, s.start, s.stop) for s in receipt.splits)
    problems = []
    if counts.read != counts.valid + counts.dead + counts.dropped:
        problems.append(f"{counts.read} messages read are not {counts.valid} valid + {counts.dead} dead + {counts.dropped} dropped")
    if counts.read + counts.invisible != length:
        problems.append(f"{counts.read} read + {counts.invisible} invisible are not the {length} offsets of the plan")
    if planned != counted:
        problems.append("its splits are not those of its plan")
    return [Finding("wrong", "receipts", p, "This is a bug: keep the table as it is and report it.", receipt.window.key) for p in problems]


def tiles(receipts: Sequence[Receipt]) -> list[Finding]:
    """Gaps between committed windows, and neighbours that don't share their boundary. Pure; receipts in window order."""
    findings = []
    for left, right in pairwise(receipts):
        if left.window.end < right.window.start:
            what = f"not committed: {instant(left.window.end)} / {instant(right.window.start)}"
            findings.append(Finding("info", "windows", what, "Run them if they are wanted."))
        elif left.window.end > right.window.start:
            what = f"windows {left.window.key} and {right.window.key} overlap in time"
            findings.append(Finding("wrong", "windows", what, "Was the grid changed by hand?", right.window.key))
        elif difference(left.plan.stop, right.plan.start):
            what = f"the end of window {left.window.key} is not the start of the next: {difference(left.plan.stop, right.plan.start)}"
            findings.append(Finding("wrong", "windows", what, "Messages between them are lost or twice.", right.window.key))
    return findings


def difference(one: Boundary, other: Boundary) -> str:
    """In which way two boundaries cut differently; empty if they cut alike. A partition that one of them doesn't list is cut at 0."""
    if (one.label, one.cluster_id, one.topics) != (other.label, other.cluster_id, other.topics):
        return f"label, cluster or topic id differ ({instant(one.label)}, {instant(other.label)})"
    tps = sorted({m.tp for m in (*one.marks, *other.marks)})
    unlike = [f"{tp} at {one.offset(tp)} and {other.offset(tp)}" for tp in tps if one.offset(tp) != other.offset(tp)]
    return "; ".join(unlike)


# ----------------------------------------------------------------------------------------------------------------------- ledger


class Kept(msgspec.Struct, frozen=True):
    """What a ledger holds about one committed window."""

    start: Boundary | None
    stop: Boundary | None
    plan: Plan | None
    receipt: Receipt | None


def _ledger(pipeline: str, committed: Sequence[Committed], ledger: Ledger) -> list[Finding]:
    copies = {r.window: r for r in ledger.recorded(pipeline)}
    windows = [c.receipt.window for c in committed]
    kept = [
        Kept(ledger.boundary(pipeline, w.start), ledger.boundary(pipeline, w.end), ledger.plan(w), copies.pop(w, None)) for w in windows
    ]
    # Asking for the identity would make an absent ledger, and one that holds nothing of ours is told of anyway.
    identity = ledger.identity() if any(k != Kept(None, None, None, None) for k in kept) else None
    findings = [f for c, k in zip(committed, kept, strict=True) for f in compare_ledger(c.receipt, k, identity)]
    do = "Was the table restored from a backup? Run the window again: it reads the same offsets."
    return findings + [Finding("wrong", "ledger", "the ledger knows a receipt that the table doesn't hold", do, w.key) for w in copies]


def compare_ledger(receipt: Receipt, kept: Kept, identity: str | None) -> list[Finding]:
    """One receipt against what the ledger holds of its window; without an identity, that isn't compared. Pure."""
    problems: list[tuple[Level, str]] = []
    if identity is not None and receipt.ledger != identity:
        problems.append(("wrong", f"committed by ledger {receipt.ledger}, this one is {identity}"))
    for name, frozen, used in (("start", kept.start, receipt.plan.start), ("end", kept.stop, receipt.plan.stop)):
        if frozen is None:
            problems.append(("wrong", f"the boundary at its {name} is missing in the ledger"))
        elif difference(frozen, used):
            problems.append(("wrong", f"the boundary at its {name} differs in the ledger: {difference(frozen, used)}"))
    if kept.plan is None or kept.plan.digest != receipt.digest:
        problems.append(("wrong", f"its plan {'is missing' if kept.plan is None else 'differs'} in the ledger"))
    if kept.receipt is None or kept.receipt.generation < receipt.generation:
        # A run that died after its commit leaves this behind; it harms nothing.
        problems.append(("info", "the ledger's copy of the receipt is missing or older"))
    elif kept.receipt != receipt:
        problems.append(("wrong", "the ledger's copy of the receipt differs"))
    return [Finding(level, "ledger", what, REBUILD, receipt.window.key) for level, what in problems]


# ------------------------------------------------------------------------------------------------------------------------ table


def _table(receipts: Sequence[Receipt], rows: Rows) -> list[Finding]:
    known = {r.window.key for r in receipts}
    do = "Something else wrote to the table. Only rows of committed windows are windrow's."
    findings = [
        Finding("wrong", "table", "the table holds rows of a window without a receipt", do, k) for k in sorted(rows.windows() - known)
    ]
    for receipt in receipts:
        findings += compare_rows(receipt, rows.held(receipt.window))
    return findings


def compare_rows(receipt: Receipt, held: Iterable[Held]) -> list[Finding]:
    """The rows of one window against its receipt, per topic-partition. Pure."""
    found = {TopicPartition(h.topic, h.partition): h for h in held}
    wanted = Counter[TopicPartition]()
    for s in receipt.splits:
        wanted[TopicPartition(s.topic, s.partition)] += s.valid
    problems = []
    for tp in sorted({*found, *wanted}):
        has = found.get(tp, Held(tp.topic, tp.partition, 0, 0, 0, 0))
        if has.rows != wanted[tp]:
            problems.append(f"{tp}: {has.rows} rows in the table, {wanted[tp]} in the receipt")
        if has.rows != has.offsets:
            problems.append(f"{tp}: {has.rows - has.offsets} rows have an offset that is there already")
        splits = [s for s in receipt.plan.splits if s.tp == tp]
        if has.rows and splits and not min(s.start for s in splits) <= has.lowest <= has.highest < max(s.stop for s in splits):
            problems.append(f"{tp}: offsets {has.lowest} to {has.highest} lie outside the receipt's range")
    do = "The table was changed by something else. windrow replay reads the window again from the same offsets."
    return [Finding("wrong", "table", p, do, receipt.window.key) for p in problems]


def compare_dead(receipt: Receipt, there: int) -> list[Finding]:
    """The dead letters of one window, of the attempt that was committed, against its receipt. Pure."""
    if there == receipt.counts.dead:
        return []
    what = f"{there} dead letters in their table, {receipt.counts.dead} in the receipt"
    do = "Their table was changed by something else. windrow replay reads the window again from the same offsets."
    return [Finding("wrong", "table", what, do, receipt.window.key)]


# ------------------------------------------------------------------------------------------------------------------------ topic


def _topic(receipts: Sequence[Receipt], broker: Broker) -> list[Finding]:
    if not receipts:
        return []
    topics = {t.topic: broker.topic(t.topic) for t in receipts[-1].plan.stop.topics}
    tps = sorted({s.tp for r in receipts for s in r.plan.splits if s.topic in topics and s.partition < topics[s.topic].partitions})
    return compare_topic(receipts, broker.cluster_id(), topics, broker.log_starts(tps))


def compare_topic(
    receipts: Sequence[Receipt], cluster_id: str, topics: dict[str, TopicInfo], starts: dict[TopicPartition, int]
) -> list[Finding]:
    """Whether the receipts are of this cluster and these topics, and whether they could be replayed. Pure."""
    findings, expired = [], []
    for receipt in receipts:
        stop = receipt.plan.stop
        gone = [t.topic for t in stop.topics if t.topic not in topics or topics[t.topic].topic_id != t.topic_id]
        if stop.cluster_id != cluster_id:
            do = "Point the spec at the cluster that the table was built from."
            what = f"committed from cluster {stop.cluster_id}, this is {cluster_id}"
            findings.append(Finding("wrong", "topic", what, do, receipt.window.key))
        elif gone:
            do = "The rows are safe; the window can't be replayed, and new windows of the new topic are refused."
            findings.append(Finding("wrong", "topic", f"topic {', '.join(gone)} was deleted and made again", do, receipt.window.key))
        elif any(s.start < starts.get(s.tp, 0) for s in receipt.plan.splits):
            expired.append(receipt.window.key)
    if expired:
        what = f"{len(expired)} of {len(receipts)} windows can't be replayed: the topic doesn't hold their start any more"
        findings.append(Finding("info", "topic", what, f"The newest of them is {expired[-1]}.", None))
    return findings
