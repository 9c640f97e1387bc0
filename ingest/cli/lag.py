"""`lag`: how far the table is behind the topics. Imported only when the command runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.lag import (
    Lag,
    Uncommitted,
    describe_uncommitted,
    find_series,
    find_uncommitted,
    measure_lag,
    tell_lag,
)
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output, stop_event
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError, UnreachableError, format_count, join_first_few
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.ledger_records import Pause
from windrow.ingest.ports.broker import OffsetAndEpoch
from windrow.ingest.runner.availability import unselected_topics
from windrow.ingest.runner.due import refused_windows
from windrow.ingest.runner.frozen_stop import DONE, bounded_source, still_to_come
from windrow.ingest.runner.group_offsets import AlteredOffsets, alter_offsets
from windrow.ingest.runner.micro_batches import is_done
from windrow.ingest.runner.next_start import next_start_after
from windrow.ingest.runner.ownership import (
    lost_in_words,
    lost_windows,
    pause_of,
    refuse_other_end,
    refuse_other_table,
    refuse_wrong_tables,
)
from windrow.ingest.source.enumerator.timestamp_search import (
    UNSTAMPED,
    UNSTAMPED_WAY_OUT,
    without_timestamps,
)

EVERY = 10.0
"""Seconds between two measurements of `--watch`."""


class Behind(msgspec.Struct):
    """The document of `lag`.

    Attributes:
        pipeline: the id of the pipeline.
        window: the newest committed window; null if there is none yet.
        lag: the lag.
        missing: windows that were committed and aren't in the table, because the table is
            an older copy.
        missing_records: the number of their offsets.
        uncommitted: windows before committed ones that were refused, or never run; empty if
            some are missing.
        group_offsets: the result of `--alter-offsets`; null without it, or if nothing is
            committed.
        unstamped: topic-partitions whose messages have no timestamps, so that windows in
            time can't read them.
        done: whether all messages up to `window.stop` are committed; null without
            `window.stop`.
        paused: the pause, if the pipeline is paused.
        unselected: sentences about topics that were read before and that the spec doesn't
            select any more.
        refused: the uncommitted windows that were refused. No schedule runs them again
            unless the spec, the plan or windrow changes.
    """

    pipeline: str
    window: str | None
    lag: Lag
    missing: tuple[str, ...] = ()
    missing_records: int = 0
    uncommitted: tuple[Uncommitted, ...] = ()
    group_offsets: AlteredOffsets | None = None
    unstamped: tuple[TopicPartition, ...] = ()
    done: bool | None = None
    paused: Pause | None = None
    unselected: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def watch_lag(output: Output, path: Path) -> None:
    """Shows the lag every few seconds, until Ctrl-C. It continues after a system didn't answer."""
    stopped = stop_event()
    while True:
        try:
            show_lag(output, path, altering=False)
        except UnreachableError as error:
            output.say(str(error))
        if stopped.wait(EVERY):
            return


def show_lag(output: Output, path: Path, *, altering: bool) -> None:
    """Shows the lag by topic-partition.

    Args:
        output: the command's output.
        path: the pipeline's file.
        altering: commit the end of the newest window to the consumer group.
    """
    spec = load_spec(path)
    group = spec.source.offsets_group
    if altering and group is None:
        raise SpecError(
            f"Pipeline {spec.id} names no consumer group for its offsets",
            "spec",
            "Set source.offsets_group in the spec.",
        )
    pipeline = assemble.assemble_to_look(spec)
    series = find_series(committed.receipt for committed in pipeline.sink.receipts())
    newest = series[-1][1] if series else None
    if newest is None:
        refuse_other_table(pipeline)
    else:
        refuse_wrong_tables(pipeline)
        refuse_other_end(pipeline.ledger, newest)
    reached = None if newest is None else next_start_after(pipeline.ledger, newest)
    unread = measure_lag(
        pipeline.broker, bounded_source(pipeline.spec, pipeline.ledger), reached, pipeline.now()
    )
    tell_lag(pipeline.observer, unread)
    missing_windows = lost_windows(pipeline)
    refused = refused_windows(pipeline.ledger, spec)
    plans = [
        plan for window in missing_windows if (plan := pipeline.ledger.plan(window)) is not None
    ]
    offsets = sum(split.stop - split.start for plan in plans for split in plan.splits)
    lag_document = Behind(
        spec.id,
        None if newest is None else newest.window.key,
        unread,
        tuple(w.key for w in missing_windows),
        offsets,
        () if missing_windows else tuple(find_uncommitted(spec.window, series)),
        unstamped=()
        if spec.window.is_batch
        else tuple(
            without_timestamps(
                pipeline.broker,
                {
                    TopicPartition(p.topic, p.partition): OffsetAndEpoch(p.end, None)
                    for p in unread.partitions
                },
            )
        ),
        done=is_done(pipeline),
        paused=pause_of(pipeline.ledger, spec.id),
        unselected=() if reached is None else unselected_topics(pipeline, reached),
        refused=tuple(w.key for w in sorted(refused - pipeline.sink.committed([*refused]))),
    )
    refused_words = (
        f"A person decides about what was refused: {join_first_few(lag_document.refused)}."
    )
    end = DONE if lag_document.done else still_to_come(pipeline).strip()
    if altering and group is not None and reached is not None:
        lag_document.group_offsets = alter_offsets(pipeline.broker, group, reached)
        output.exit_code = UnreachableError.exit_code if lag_document.group_offsets.failed else 0
    upto = (
        "Nothing is committed yet"
        if newest is None
        else f"Committed up to the end of window {newest.window.key}"
    )
    is_known = newest is None or pipeline.ledger.boundary(spec.id, newest.window.end) is not None
    unknown = (
        f"The ledger doesn't know window {lag_document.window}, which the table has: it is another"
    )
    gaps = lag_document.uncommitted
    counts = [offsets, *(gap.offsets for gap in gaps)]
    sure = [count for count in counts if count is not None]
    have = (
        f"They have {format_count(sum(sure), 'offset')}, which"
        if sure == counts
        else "Their offsets"
    )
    missing = (
        lost_in_words(pipeline, missing_windows)
        if missing_windows
        else describe_uncommitted(gaps)
        if gaps
        else ""
    )
    output.show(
        lag_document,
        render.lag_table(unread),
        *(
            [Text(f"Pipeline {spec.id} {lag_document.paused}.", style="yellow")]
            if lag_document.paused
            else []
        ),
        Text(f"{upto}."),
        *(
            []
            if is_known
            else [Text(f"{unknown} one, an older copy, or lost. windrow doctor SPEC says more.")]
        ),
        *([Text(end)] if end else []),
        *(
            [Text(f"Not read, as they are newer than window.stop: {join_first_few(unread.newer)}.")]
            if unread.newer
            else []
        ),
        *(Text(f"{warning}.", style="yellow") for warning in lag_document.unselected),
        *([Text(refused_words, style="yellow")] if lag_document.refused else []),
        *(Text(f"{tp}: {UNSTAMPED}. {UNSTAMPED_WAY_OUT}") for tp in lag_document.unstamped),
        *([Text(f"{missing} {have} are not counted above.")] if missing else []),
        *_group_offsets_lines(lag_document.group_offsets, altering=altering),
    )


def _group_offsets_lines(done: AlteredOffsets | None, *, altering: bool) -> list[Text]:
    if done is None:
        return [Text("So no offsets were committed to the group.")] if altering else []
    return render.group_offsets_lines(done)
