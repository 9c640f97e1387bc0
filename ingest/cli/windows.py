"""`show`, `state` and `due`: which windows are committed, complete, or waiting to be run.

Imported only when such a command runs.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.completeness import completeness_of, describe_holding, refuse_batches
from windrow.ingest.admin.lag import (
    Uncommitted,
    describe_uncommitted,
    find_series,
    find_uncommitted,
)
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import windows_named
from windrow.ingest.errors import NotClosedError, format_count, join_first_few
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.grid import labels_between
from windrow.ingest.model.receipt import Committed
from windrow.ingest.runner.due import closed_windows, due, refused_windows
from windrow.ingest.runner.frozen_stop import DONE
from windrow.ingest.runner.ownership import refuse_other_table
from windrow.ingest.source.enumerator.completeness import State


class ShownWindows(msgspec.Struct):
    """The document of `show`.

    Attributes:
        pipeline: the id of the pipeline.
        windows: the newest committed windows.
        has_more: whether there are older ones.
        uncommitted: windows between the shown ones that were refused or never run. Windows
            before the first shown one count, too, if all committed windows are shown.
        done: whether the newest window reaches `window.stop`, as it was when that window
            was run.
    """

    pipeline: str
    windows: list[Committed]
    has_more: bool = msgspec.field(name="left_out")
    uncommitted: list[Uncommitted]
    done: bool = False


def show_windows(output: Output, path: Path, text: str | None, limit: int) -> None:
    """Shows the newest committed windows, as the sink's receipts have them."""
    spec = load_spec(path)
    requested_windows = None if text is None else set(windows_named(spec, text))
    sink, _ = assemble.open_table(spec)
    matches = (
        c
        for c in sink.receipts()
        if requested_windows is None or c.receipt.window in requested_windows
    )
    committed = sorted(matches, key=lambda c: c.receipt.window)
    if not committed:
        refuse_other_table(assemble.assemble_to_look(spec))
    shown_windows = committed[-limit:]
    older = len(committed) - len(shown_windows)
    series = find_series(c.receipt for c in shown_windows)
    not_run = find_uncommitted(spec.window, series, since_start=not older and text is None)
    is_done = bool(committed) and committed[-1].receipt.done
    notes = [
        *([f"{older} older ones are not shown (--limit)"] if older else []),
        *([describe_uncommitted(not_run)] if not_run else []),
        *([DONE] if is_done else []),
    ]
    lines = [
        *render.ignored_lines([committed_window.receipt for committed_window in shown_windows]),
        *map(Text, notes),
    ]
    table = (
        render.window_table(shown_windows)
        if shown_windows
        else Text(f"Nothing is committed {'yet' if text is None else f'in {text}'}.")
    )
    output.show(ShownWindows(spec.id, shown_windows, older > 0, not_run, is_done), table, *lines)


class ShownState(msgspec.Struct, frozen=True):
    """The state of one window.

    Attributes:
        window: the window's key.
        state: its state.
        late_elsewhere: the number of messages of its hours that are in later windows.
    """

    window: str
    state: State | Literal["uncommitted", "refused"]
    late_elsewhere: int = 0


class ShownStates(msgspec.Struct, frozen=True):
    """The document of `state`.

    Attributes:
        pipeline: the id of the pipeline.
        watermark: the watermark; null if no label is proven to be complete.
        holding: the topic-partitions that hold the watermark back.
        windows: the states of the windows.
        event_time: the column by which windows are complete; null: by the broker's timestamps.
        event_watermark: the event watermark; null if there is none.
    """

    pipeline: str
    watermark: datetime | None
    holding: tuple[TopicPartition, ...]
    windows: tuple[ShownState, ...]
    event_time: str | None = None
    event_watermark: datetime | None = None


def show_states(output: Output, path: Path, text: str) -> None:
    """Shows the states of the named windows.

    Raises:
        NotClosedError: a window is open, or isn't committed.
    """
    spec = load_spec(path)
    refuse_batches(spec)
    windows = windows_named(spec, text)
    pipeline = assemble.assemble_to_look(spec)
    receipts = [
        committed_window.receipt
        for committed_window in pipeline.sink.looks(windows)
        if committed_window is not None
    ]
    if not receipts:
        refuse_other_table(pipeline)
    start, _ = windows[0].span or (pipeline.now(), None)
    since = labels_between(spec.window.grid, start, pipeline.now())
    completeness = completeness_of(pipeline, len(since) + 1, receipts)
    refused = refused_windows(pipeline.ledger, spec)
    committed = {receipt.window.key for receipt in receipts}
    states = tuple(
        ShownState(key, completeness.windows[key].state, completeness.windows[key].late_elsewhere)
        if key in committed
        else ShownState(key, "refused" if window in refused else "uncommitted")
        for window in windows
        for key in (window.key,)
    )
    late = ", {} of its hours in later windows"
    output.show(
        ShownStates(
            spec.id,
            completeness.watermark,
            completeness.holding,
            states,
            completeness.event_time,
            completeness.event_watermark,
        ),
        *(
            Text(f"{shown_state.window}: {shown_state.state}")
            + (
                late.format(format_count(shown_state.late_elsewhere, "message"))
                if shown_state.late_elsewhere
                else ""
            )
            for shown_state in states
        ),
    )
    missing, opened = (
        [shown_state.window for shown_state in states if shown_state.state in state_names]
        for state_names in ({"uncommitted", "refused"}, {"open"})
    )
    if missing:
        raise NotClosedError(
            f"Not committed of {spec.id}: {join_first_few(missing)}",
            "check",
            f"`windrow run SPEC --window {missing[0]}` commits it, or says why not.",
        )
    if opened:
        raise NotClosedError(
            f"Not complete of {spec.id}: {join_first_few(opened)}",
            "check",
            describe_holding(completeness, pipeline.ledger.newest(spec.id)[-1]),
        )


class Due(msgspec.Struct, frozen=True):
    """The document of `due`: windows by their starts, the oldest first.

    Attributes:
        pipeline: the id of the pipeline.
        windows: windows that are due.
        refused: refused windows, about which a person must decide.
        older: windows among the 1,000 before that aren't committed, and are too old for a
            schedule.
    """

    pipeline: str
    windows: tuple[str, ...]
    refused: tuple[str, ...]
    older: tuple[str, ...]


def show_due(output: Output, path: Path) -> None:
    """Shows the windows that a schedule would run now.

    Raises:
        SpecError: the pipeline has micro-batches.
    """
    spec = load_spec(path)
    pipeline = assemble.assemble_to_look(spec)
    earlier, windows = closed_windows(spec, pipeline.now())
    committed = pipeline.sink.committed([*earlier, *windows])
    if not committed:
        refuse_other_table(pipeline)
    due_windows, refused = due(spec, windows, committed, refused_windows(pipeline.ledger, spec))
    older = [window for window in earlier if window not in committed]
    shown = Due(
        spec.id,
        *(
            tuple(window.key for window in window_group)
            for window_group in (due_windows, refused, older)
        ),
    )
    notes = []
    if shown.refused:
        order_note = (
            " Those behind the first one can only follow in order." if spec.in_order else ""
        )
        refused_keys = join_first_few(shown.refused)
        notes.append(f"A person decides about what was refused: {refused_keys}.{order_note}")
    if older:
        notes.append(
            f"Not committed, and too old for a schedule: {format_count(len(older), 'window')}, the"
            f" first at {shown.older[0]}. windrow run SPEC --window START/END commits them."
        )
    output.show(
        shown,
        *map(Text, shown.windows or ["No closed window is waiting."]),
        *(Text(note, style="yellow") for note in notes),
    )
