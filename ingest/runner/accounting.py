"""Pure judgements over what the tasks counted: do independent hands agree, and are
there too many dead letters?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.config.pipeline import LimitsSpec, StageLimits, is_beyond_share
from windrow.ingest.errors import AccountingError, DataLossError, DeadLetterLimitError, RefusedError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.label import label_text
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.receipt import Counts, Receipt, SplitCounts
from windrow.ingest.model.refusals import KINDS_SHOWN, OFFSETS_MAX, RefusedAt, bounded
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.decoder import STAGES, Decoded
from windrow.ingest.source.enumerator.splits import doubts
from windrow.ingest.source.enumerator.tiling import between

SHOWN = 20
"""How many dead letters' coordinates a receipt keeps per split."""


def refuse_misread(split: Split, messages: pa.RecordBatch, position: int) -> int:
    """Each message lies in the split, behind all that was read before: one that is
    given twice, and another never, add up as well.

    Args:
        split: what is read.
        messages: the next batch of it.
        position: behind the last message before it; where the split starts, if there is none.

    Returns:
        The position behind the batch.

    Raises:
        AccountingError: says what is wrong, and where.
    """
    offsets = messages.column("offset").to_numpy()
    if not len(offsets):
        return position
    wrong = np.flatnonzero((np.diff(offsets, prepend=position - 1) < 1) | (offsets >= split.stop))
    if len(wrong):
        raise AccountingError(
            f"The reader gave offset {offsets[wrong[0]]} out of turn: what lies from {split.start}"
            f" to {split.stop} is due once, in order",
            "check",
            "Nothing was committed. Report a bug in the reader.",
            split.topic,
            split.partition,
            int(offsets[wrong[0]]),
        )
    return int(offsets[-1]) + 1


def refuse_unplaced(
    split: Split, messages: pa.RecordBatch, decoded: Decoded, *, keyed: bool = False
) -> None:
    """Each message of a batch is in exactly one place, and each row is some message's,
    in order: decoder and transforms against the reader.

    `keyed`: whether rows may be taken out of the table, which so has a primary key.

    Raises:
        AccountingError: says what is wrong with the batch, and where it begins.
    """
    rows, dead = decoded.row_index.to_numpy(), decoded.dead_index.to_numpy()
    deletes = np.zeros(0, np.int64) if decoded.deletes is None else decoded.deletes.index.to_numpy()
    keys = 0 if decoded.deletes is None else decoded.deletes.keys.num_rows
    count, placed = (
        messages.num_rows,
        decoded.valid + len(dead) + decoded.dropped + decoded.filtered,
    )
    parts = (
        f"{decoded.valid} valid + {len(dead)} dead + {decoded.dropped} dropped + {decoded.filtered}"
        " filtered"
    )
    problems = [
        text
        for wrong, text in (
            (
                len(rows) != decoded.rows.num_rows,
                f"{decoded.rows.num_rows} rows came with the messages of {len(rows)}",
            ),
            (not _ascends(rows, count, 0), "rows are not in the order of the batch's messages"),
            (
                not _ascends(dead, count, 1),
                "dead letters are not in the order of the batch's messages, each once",
            ),
            (len(dead) and np.isin(dead, rows).any(), "a message is a row and a dead letter"),
            (len(deletes) != keys, f"{keys} deletes came with the messages of {len(deletes)}"),
            (
                not _ascends(deletes, count, 0),
                "deletes are not in the order of the batch's messages",
            ),
            (len(dead) and np.isin(dead, deletes).any(), "a message is a delete and a dead letter"),
            (
                len(deletes) and not keyed,
                f"{len(deletes)} deletes came for a table without a primary key",
            ),
            (decoded.dropped < 0 or decoded.filtered < 0, "a count is negative"),
            (placed != count, f"of {count} messages {placed} were accounted for: {parts}"),
        )
        if wrong
    ]
    if problems:
        first = messages.column("offset")[0].as_py() if count else split.start
        raise AccountingError(
            "The decoder or a transform miscounted: " + "; ".join(problems),
            "check",
            "Nothing was committed. Report a bug in the format or the transform.",
            split.topic,
            split.partition,
            first,
        )


def _ascends(index: npt.NDArray[np.int64], count: int, least: int) -> bool:
    """Whether positions among `count` go up, each by `least` or more."""
    return not len(index) or (
        index[0] >= 0
        and index[-1] < count
        and (len(index) == 1 or bool(np.diff(index).min() >= least))
    )


def refuse_unequal(plan: Plan, staged: Sequence[Staged]) -> None:
    """Reader, task and stager agree, per split: `read = valid + dead + dropped +
    filtered`, and what was given to the stager was staged.

    Every split of the plan is there once, and was read to its end.

    Raises:
        AccountingError: names the split and the numbers that disagree.
    """
    if tuple(s.split for s in staged) != plan.splits:
        raise AccountingError(
            f"The tasks brought back {len(staged)} results that are not the plan's"
            f" {len(plan.splits)} splits",
            "check",
            "Nothing was committed. Run the window again; if it happens again, report a bug.",
        )
    for result in staged:
        _refuse_split(result.counts)


def _refuse_split(c: SplitCounts) -> None:
    problems = [
        text
        for wrong, text in (
            (
                c.read != c.valid + c.dead + c.dropped + c.filtered,
                f"read {c.read} is not {_verdicts(c)}",
            ),
            (
                c.rows_staged != c.rows + c.deletes,
                (
                    f"{c.rows_staged} rows were staged of {_changes(c)} that {c.valid} valid"
                    " messages became"
                ),
            ),
            (
                c.rows + c.deletes < c.valid,
                f"{c.valid} valid messages became {_changes(c)} rows, less than one each",
            ),
            (
                c.dead_staged != c.dead,
                f"{c.dead_staged} dead letters were staged for {c.dead} refused messages",
            ),
            (
                c.next_offset < c.stop,
                f"the reader stood at {c.next_offset}, before the stop {c.stop}",
            ),
            (
                c.missing < 0,
                (
                    f"{c.read} messages were read and {c.skipped} offsets skipped of"
                    f" {c.stop - c.start}"
                ),
            ),
        )
        if wrong
    ]
    if problems:
        raise AccountingError(
            "The counters disagree: " + "; ".join(problems),
            "check",
            "Nothing was committed. Run the window again; if it happens again, report a bug.",
            c.topic,
            c.partition,
            c.start,
        )


def _changes(c: SplitCounts) -> str:
    return f"{c.rows} + {c.deletes} deleted" if c.deletes else f"{c.rows}"


def _verdicts(c: SplitCounts) -> str:
    return f"valid {c.valid} + dead {c.dead} + dropped {c.dropped} + filtered {c.filtered}"


def refuse_too_many_dead(
    window: Window, staged: Sequence[Staged], limits: LimitsSpec, way_to_see: str
) -> None:
    """Hold the window's dead letters against the limits: all of them, then those of each stage.

    Raises:
        DeadLetterLimitError: says what was wrong where in the documents, how often, and
            where the first ones lie; never a payload.
    """
    total = Counts.total(s.counts for s in staged)
    refused = [(s.split.tp, one) for s in staged for one in s.refused]
    first = next(
        ([f"{s.split.tp}@{offset}"] for s in staged for offset, _ in s.counts.first_dead), []
    )
    _refuse_beyond(
        window,
        _Refused(total.dead, total.read, [one for _, one in refused], first),
        limits,
        "limits",
        way_to_see,
    )
    for stage in STAGES:
        ones = [(tp, one) for tp, one in refused if one.stage == stage]
        first = [f"{tp}@{offset}" for tp, one in ones for offset in one.first][:OFFSETS_MAX]
        found = _Refused(
            sum(one.count for _, one in ones),
            total.read,
            [one for _, one in ones],
            first,
            f" at stage {stage}",
        )
        _refuse_beyond(window, found, limits.of(stage), f"limits.{stage}", way_to_see)


@dataclass(frozen=True)
class _Refused:
    """Dead letters of a window that one limit is for: how many of how many messages,
    what was wrong, the first places; which they are.
    """

    dead: int
    read: int
    refused: Sequence[RefusedAt]
    first: Sequence[str]
    which: str = ""


def _refuse_beyond(
    window: Window, found: _Refused, limits: StageLimits | LimitsSpec, setting: str, way_to_see: str
) -> None:
    over_ratio = is_beyond_share(found.dead, found.read, limits.max_dead_ratio)
    over_count = limits.max_dead_count is not None and found.dead > limits.max_dead_count
    if not over_ratio and not over_count:
        return
    limit = (
        f"{setting}.max_dead_ratio {limits.max_dead_ratio}"
        if over_ratio
        else f"{setting}.max_dead_count {limits.max_dead_count}"
    )
    kinds: Counter[str] = Counter()
    for one in found.refused:
        kinds.update(dict(one.kinds))
    told = "; ".join(f"{what} ({n})" for what, n in bounded(kinds, KINDS_SHOWN))
    first = f" First: {', '.join(found.first)}." if found.first else ""
    raise DeadLetterLimitError(
        f"Window {window.key}: {found.dead} of {found.read} refused{found.which}: {told}.{first}"
        f" That is more than {limit} allows",
        "check",
        f"No row was committed. Look at them ({way_to_see}), fix the schema or the producer, or"
        " raise the limit, and run it again.",
    )


def refuse_undoing(before: Receipt) -> None:
    """A replacement reads the log, where edited messages stand as they were.

    Raises:
        RefusedError: the window holds such messages.
    """
    edited = 0 if before.dead_replay is None else before.dead_replay.edited
    if edited:
        what = (
            f"Window {before.window.key} holds {edited} messages that were edited for a"
            " dead-letter replay, and the topic has them unedited"
        )
        do = (
            "Nothing was replaced. Replay with --accept-fewer makes them dead letters again, as far"
            " as they are refused; replay those then."
        )
        raise RefusedError(what, "plan", do)


def refuse_fewer(now: Receipt, before: Receipt) -> None:
    """Hold a replacement against what it replaces, by topic-partition: more in one must
    not hide fewer in another.

    Raises:
        DataLossError: names the first that has fewer messages now.
    """
    left, had = _messages(now), _messages(before)
    fewer = next((tp for tp in sorted(had) if left[tp] < had[tp]), None)
    if fewer is not None:
        raise DataLossError(
            f"Replacing window {now.window.key}: {left[fewer]} messages are left, generation"
            f" {before.generation} had {had[fewer]}",
            "check",
            "Retention or compaction took them. Nothing was replaced; replay with --accept-fewer if"
            " fewer is what you want.",
            fewer.topic,
            fewer.partition,
        )


def _messages(receipt: Receipt) -> Counter[TopicPartition]:
    found = Counter[TopicPartition]()
    for split in receipt.splits:
        found[TopicPartition(split.topic, split.partition)] += split.read
    return found


def unexplained(
    plan: Plan, splits: Sequence[SplitCounts], compacted: frozenset[str]
) -> tuple[str, ...]:
    """Warnings about offsets without a message that neither markers nor aborted messages explain.

    Each transaction marker ends a transaction that wrote at least one message to the
    topic-partition; so on a topic that is not compacted a range can't hold many more
    markers than messages. (Not a proof: transactions may have begun before the range.)
    """
    found = []
    for s in splits:
        markers = s.missing - s.aborted
        if s.topic not in compacted and markers > 2 * (s.read + s.aborted) + 100:
            found.append(
                f"{s.topic}[{s.partition}] {s.start}..{s.stop}: {markers} offsets hold neither a"
                " visible nor an aborted message, more than transaction markers explain on a topic"
                f" that is not compacted (window {plan.window.key})"
            )
    return tuple(found)


def losses(plan: Plan, splits: Sequence[SplitCounts]) -> tuple[str, ...]:
    """What a window has lost, or may have lost, one sentence each: for the receipt of a
    window that went on without it.
    """
    found = [
        f"{s.topic}[{s.partition}] {s.start}..{s.stop}: {s.skipped} offsets were not in the log any"
        " more and were skipped"
        for s in splits
        if s.skipped
    ]
    found += [
        f"{s.topic}[{s.partition}] {s.start}..{s.stop}: the log was cut off below offset {s.start}"
        " and has grown again; what was written there before that offset is in no window"
        for s in splits
        if s.regrown
    ]
    found += [f"{tp} {words}" for tp, (_, words) in doubts(plan).items()]
    return tuple(found)


def held_back(plan: Plan) -> tuple[str, ...]:
    """Warnings about a window that ends before an open transaction, because it had
    waited long enough.
    """
    return tuple(
        f"{m.topic}[{m.partition}]: a transaction was still open at offset {m.offset} when"
        f" {label_text(plan.stop.label)} was resolved; its messages are in a later window"
        for m in plan.stop.marks
        if m.how == "open"
    )


def unwitnessed(plan: Plan) -> tuple[str, ...]:
    """Warnings about where a window begins without a leader epoch: a boundary of an
    older version, or a cluster that names none.
    """
    read = {s.tp for s in plan.splits}
    return tuple(
        f"{tp}: where the window begins, offset {low.offset}, was frozen without a leader epoch:"
        f" had the log been cut off below it and grown again before {label_text(plan.stop.label)}"
        " was frozen, nothing would have shown it"
        for tp, (low, _) in between(plan.start, plan.stop).items()
        if tp in read and low.offset > 0 and low.leader_epoch is None
    )
