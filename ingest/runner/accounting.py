"""Checks of the counts of tasks, splits and windows.

Reader, task and stager must agree, and a window must not have too many dead letters.
The functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.config.limits import LimitsSpec, StageLimits, is_beyond_share
from windrow.ingest.errors import (
    AccountingError,
    DataLossError,
    DeadLetterLimitError,
    RefusedError,
    format_count,
)
from windrow.ingest.model.boundary import TopicPartition, instant, label_text
from windrow.ingest.model.lookup import merge_parts
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import Counts, Receipt, SplitCounts, Staged
from windrow.ingest.model.refusal_summary import KINDS_SHOWN, OFFSETS_MAX, RefusedAt, most_frequent
from windrow.ingest.model.tiling import offset_ranges
from windrow.ingest.ports.decoder import STAGES, Decoded
from windrow.ingest.source.data_loss import doubts

MANY_KEYS = 20
"""A lookup that finds none of so many keys is suspect."""

SHOWN = 20
"""Number of dead letters per split whose offsets a receipt keeps."""


def refuse_misread(split: Split, messages: pa.RecordBatch, position: int) -> int:
    """Checks that each message is in the split, and comes after all messages read before.

    The counts alone don't show this: a message that is read twice hides a message that is
    never read.

    Args:
        split: the split that is read.
        messages: the next batch of messages.
        position: the offset after the last message before the batch; at first the split's
            start.

    Returns:
        The offset after the last message of the batch.

    Raises:
        AccountingError: a message is out of order; the text names its offset.
    """
    offsets = messages.column("offset").to_numpy()
    if not len(offsets):
        return position
    bad_indices = np.flatnonzero(
        (np.diff(offsets, prepend=position - 1) < 1) | (offsets >= split.stop)
    )
    if len(bad_indices):
        raise AccountingError(
            f"The reader returned offset {offsets[bad_indices[0]]} out of order: each message from"
            f" {split.start} to {split.stop} must come once, in ascending order",
            "check",
            "Nothing was committed. Report a bug in the reader.",
            split.topic,
            split.partition,
            int(offsets[bad_indices[0]]),
        )
    return int(offsets[-1]) + 1


def refuse_unplaced(
    split: Split, messages: pa.RecordBatch, decoded: Decoded, *, keyed: bool = False
) -> None:
    """Checks that each message of a batch has exactly one outcome, and that rows are in order.

    An outcome is: rows or deletes, a dead letter, dropped, or filtered.

    Args:
        split: the split that is read.
        messages: a batch of the reader.
        decoded: the result of decoder and transforms for the batch.
        keyed: True if the table has a primary key, so that messages may delete rows.

    Raises:
        AccountingError: the batch is miscounted. The text says how, and the first offset of
            the batch.
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
        for is_problem, text in (
            (
                len(rows) != decoded.rows.num_rows,
                (
                    f"{format_count(decoded.rows.num_rows, 'row')} came with the messages of"
                    f" {len(rows)}"
                ),
            ),
            (not _ascends(rows, count, 0), "rows are not in the order of the batch's messages"),
            (
                not _ascends(dead, count, 1),
                "dead letters are not in the order of the batch's messages, each once",
            ),
            (len(dead) and np.isin(dead, rows).any(), "a message is a row and a dead letter"),
            (
                len(deletes) != keys,
                f"{format_count(keys, 'delete')} came with the messages of {len(deletes)}",
            ),
            (
                not _ascends(deletes, count, 0),
                "deletes are not in the order of the batch's messages",
            ),
            (len(dead) and np.isin(dead, deletes).any(), "a message is a delete and a dead letter"),
            (
                len(deletes) and not keyed,
                f"{format_count(len(deletes), 'delete')} came for a table without a primary key",
            ),
            (decoded.dropped < 0 or decoded.filtered < 0, "a count is negative"),
            (
                placed != count,
                f"{placed} of {format_count(count, 'message')} accounted for: {parts}",
            ),
        )
        if is_problem
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
    """Returns whether positions below `count` ascend, each step by `least` or more."""
    return not len(index) or (
        index[0] >= 0
        and index[-1] < count
        and (len(index) == 1 or bool(np.diff(index).min() >= least))
    )


def refuse_unequal(plan: Plan, staged: Sequence[Staged]) -> None:
    """Checks for each split that the counts of reader, task and stager agree.

    `read = valid + dead + dropped + filtered`, and the stager staged as many rows as it
    was given. Every split of the plan has one result, and was read to its end.

    Raises:
        AccountingError: the text names the split and the numbers that disagree.
    """
    if tuple(s.split for s in staged) != plan.splits:
        raise AccountingError(
            f"The tasks returned {format_count(len(staged), 'result')}, and not those of the plan's"
            f" {format_count(len(plan.splits), 'split')}",
            "check",
            "Nothing was committed. Run the window again; if it happens again, report a bug.",
        )
    for result in staged:
        _refuse_split(result.counts)


def _refuse_split(c: SplitCounts) -> None:
    problems = [
        text
        for is_problem, text in (
            (
                c.read != c.valid + c.dead + c.dropped + c.filtered,
                f"read {c.read} is not {_verdicts(c)}",
            ),
            (
                c.rows_staged != c.rows + c.deletes,
                (
                    f"{format_count(c.rows_staged, 'row')} staged of {_changes(c)} that"
                    f" {format_count(c.valid, 'valid message')} became"
                ),
            ),
            (
                c.rows + c.deletes < c.valid,
                (
                    f"{format_count(c.valid, 'valid message')} became fewer rows than one each:"
                    f" {_changes(c)}"
                ),
            ),
            (
                c.dead_staged != c.dead,
                (
                    f"{format_count(c.dead_staged, 'dead letter')} staged for"
                    f" {format_count(c.dead, 'refused message')}"
                ),
            ),
            (
                c.next_offset < c.stop,
                f"the reader ended at {c.next_offset}, before the stop {c.stop}",
            ),
            (
                c.missing < 0,
                (
                    f"{format_count(c.read, 'message')} read and"
                    f" {format_count(c.skipped, 'offset')} skipped of {c.stop - c.start}"
                ),
            ),
        )
        if is_problem
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
    window: Window, staged: Sequence[Staged], limits: LimitsSpec, command: str
) -> None:
    """Compares the numbers of a window's dead letters with the limits, in total and per stage.

    Args:
        window: the window.
        staged: the results of its splits.
        limits: the spec's limits.
        command: the command that shows dead letters, for the message.

    Raises:
        DeadLetterLimitError: there are too many. The text has the kinds of refusals, their
            counts, and the offsets of the first ones. It never has a payload.
    """
    total = Counts.total(s.counts for s in staged)
    refused = [(s.split.tp, refusal) for s in staged for refusal in s.refused]
    first = next(
        ([f"{s.split.tp}@{offset}"] for s in staged for offset, _ in s.counts.first_dead), []
    )
    _refuse_beyond(
        window,
        _RefusedCounts(total.dead, total.read, [refusal for _, refusal in refused], first),
        limits,
        "limits",
        command,
    )
    for stage in STAGES:
        stage_refusals = [(tp, refusal) for tp, refusal in refused if refusal.stage == stage]
        first = [f"{tp}@{offset}" for tp, refusal in stage_refusals for offset in refusal.first][
            :OFFSETS_MAX
        ]
        counts = _RefusedCounts(
            sum(refusal.count for _, refusal in stage_refusals),
            total.read,
            [refusal for _, refusal in stage_refusals],
            first,
            f" at stage {stage}",
        )
        _refuse_beyond(window, counts, limits.for_stage(stage), f"limits.{stage}", command)


class _RefusedCounts(msgspec.Struct, frozen=True):
    """The dead letters of a window that one limit counts.

    Attributes:
        dead: the number of these dead letters.
        read: the number of messages of the window.
        refused: the refusals.
        first: the topic-partitions and offsets of the first ones.
        which: the stage, as a part of a sentence.
    """

    dead: int
    read: int
    refused: Sequence[RefusedAt]
    first: Sequence[str]
    which: str = ""


def _refuse_beyond(
    window: Window,
    counts: _RefusedCounts,
    limits: StageLimits | LimitsSpec,
    setting: str,
    command: str,
) -> None:
    over_ratio = is_beyond_share(counts.dead, counts.read, limits.max_dead_ratio)
    over_count = limits.max_dead_count is not None and counts.dead > limits.max_dead_count
    if not over_ratio and not over_count:
        return
    limit = (
        f"{setting}.max_dead_ratio {limits.max_dead_ratio}"
        if over_ratio
        else f"{setting}.max_dead_count {limits.max_dead_count}"
    )
    kinds: Counter[str] = Counter()
    for refusal in counts.refused:
        kinds.update(dict(refusal.kinds))
    listed = "; ".join(f"{kind} ({n})" for kind, n in most_frequent(kinds, KINDS_SHOWN))
    first = f" First: {', '.join(counts.first)}." if counts.first else ""
    raise DeadLetterLimitError(
        f"Window {window.key}: {counts.dead:,} of {format_count(counts.read, 'message')} refused"
        f"{counts.which}: {listed}.{first} That is more than {limit} allows",
        "check",
        f"No row was committed. Look at the refused messages ({command}), fix the schema or the"
        " producer, or raise the limit, and run it again.",
    )


def refuse_undoing(replaced: Receipt) -> None:
    """Refuses to replace a window that has edited messages.

    A replacement reads the log again, and the log has the unedited messages.

    Raises:
        RefusedError: the window has edited messages.
    """
    edited = 0 if replaced.dead_replay is None else replaced.dead_replay.edited
    if edited:
        raise RefusedError(
            f"Window {replaced.window.key} holds {format_count(edited, 'message')} edited for a"
            " dead-letter replay, and the topic has them unedited",
            "plan",
            "Nothing was replaced. Replay with --accept-fewer makes them dead letters again, as far"
            " as they are refused; replay those then.",
        )


def refuse_expired(committed: Receipt) -> None:
    """Refuses another generation of a window whose rows have expired.

    Raises:
        RefusedError: they have; the advice says how to read the window nevertheless.
    """
    if committed.expired_at is not None:
        key = committed.window.key
        raise RefusedError(
            f"The rows of window {key} were older than maintain.keep_rows, and were removed at"
            f" {instant(committed.expired_at)}",
            "plan",
            f"Nothing was read. windrow replay SPEC --window {key} --bring-back reads the window"
            " again, if the topic still has its messages (in Dagster bring_back: true, with"
            " on_committed: replace). The next maintenance removes the rows again, unless"
            " maintain.keep_rows is longer by then.",
        )


def refuse_fewer(receipt: Receipt, replaced: Receipt) -> None:
    """Refuses a replacement with fewer messages than the generation that it replaces.

    Each topic-partition is compared alone: more messages in one must not hide fewer messages
    in another.

    Raises:
        DataLossError: the text names the first topic-partition with fewer messages.
    """
    new_counts, old_counts = _messages(receipt), _messages(replaced)
    fewer = next((tp for tp in sorted(old_counts) if new_counts[tp] < old_counts[tp]), None)
    if fewer is not None:
        raise DataLossError(
            f"Replacing window {receipt.window.key}: {format_count(new_counts[fewer], 'message')}"
            f" left, generation {replaced.generation} had {old_counts[fewer]}",
            "check",
            "Retention or compaction removed them. Nothing was replaced. Replay with --accept-fewer"
            " to go on with fewer; not while a table of routes lacks the window, for the others"
            " would lose rows: restore that table from a copy that has it.",
            fewer.topic,
            fewer.partition,
        )


def _messages(receipt: Receipt) -> Counter[TopicPartition]:
    read_counts = Counter[TopicPartition]()
    for split in receipt.splits:
        read_counts[TopicPartition(split.topic, split.partition)] += split.read
    return read_counts


def find_unexplained(
    plan: Plan, splits: Sequence[SplitCounts], compacted: frozenset[str]
) -> tuple[str, ...]:
    """Returns warnings about too many offsets without a message.

    Transaction markers and aborted messages explain such offsets. A marker ends a
    transaction that wrote at least one message to the topic-partition. So without
    compaction, a range has few more markers than messages. This is no proof, because a
    transaction may have written its messages before the range.

    Args:
        plan: the window's plan.
        splits: the counts of its splits.
        compacted: the topics that are compacted; they are not checked.
    """
    warnings = []
    for s in splits:
        markers = s.missing - s.aborted
        if s.topic not in compacted and markers > 2 * (s.read + s.aborted) + 100:
            warnings.append(
                f"{s.topic}[{s.partition}] {s.start}..{s.stop}: {format_count(markers, 'offset')}"
                " with neither a visible nor an aborted message, more than transaction markers"
                f" explain on a topic that is not compacted (window {plan.window.key})"
            )
    return tuple(warnings)


def describe_losses(plan: Plan, splits: Sequence[SplitCounts]) -> tuple[str, ...]:
    """Returns a sentence for each certain or possible loss of messages of a window.

    The sentences are for the receipt of a window that is committed without these messages.
    """
    sentences = [
        f"{s.topic}[{s.partition}]: {s.skipped:,} of the offsets {s.start}..{s.stop} were not in"
        " the log any more and were skipped"
        for s in splits
        if s.skipped
    ]
    sentences += [
        f"{s.topic}[{s.partition}] {s.start}..{s.stop}: the log was truncated below offset"
        f" {s.start} and has grown again; messages that were written below it since are in no"
        " window"
        for s in splits
        if s.diverged
    ]
    sentences += [f"{tp} {words}" for tp, (_, words) in doubts(plan).items()]
    return tuple(sentences)


def held_back(plan: Plan) -> tuple[str, ...]:
    """Returns warnings about a window that ends before an open transaction.

    The run waited for the transaction until the limit (`delay` + `max_wait`).
    """
    return tuple(
        f"{m.topic}[{m.partition}]: a transaction was still open at offset {m.offset} when"
        f" {label_text(plan.stop.label)} was resolved; its messages are in a later window"
        for m in plan.stop.marks
        if m.origin == "open"
    )


def find_unanswered(splits: Sequence[SplitCounts]) -> tuple[str, ...]:
    """Returns warnings about lookups that found none of many keys.

    A service with a wrong address answers as if it had none of the keys.
    """
    return tuple(
        f"The lookup {lookup.lookup} found none of the {format_count(lookup.keys, 'key')} that it"
        " asked for: see whether its address and its key are right"
        for lookup in merge_parts(part for split in splits for part in split.lookups)
        if lookup.keys >= MANY_KEYS and not lookup.hits
    )


def find_unwitnessed(plan: Plan) -> tuple[str, ...]:
    """Returns warnings about a window that begins at an offset without a leader epoch.

    Either an older version of windrow froze the boundary, or the cluster has no epochs.
    """
    read = {s.tp for s in plan.splits}
    return tuple(
        f"{tp}: the window begins at offset {low.offset}, which was frozen without a leader epoch:"
        " nothing shows whether the log was truncated below it and grew again before"
        f" {label_text(plan.stop.label)} was frozen"
        for tp, (low, _) in offset_ranges(plan.start, plan.stop).items()
        if tp in read and low.offset > 0 and low.leader_epoch is None
    )
