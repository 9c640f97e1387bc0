"""`state`: whether windows are complete. Loaded only when the command runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.completeness import completeness_of, holding_in_words, refuse_batches
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import windows_named
from windrow.ingest.errors import NotClosedError, counted, first_few
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.grid import labels_between
from windrow.ingest.runner.due import refused_windows
from windrow.ingest.runner.ownership import refuse_other_table
from windrow.ingest.source.enumerator.completeness import State


class ShownState(msgspec.Struct, frozen=True):
    """One window. `late_elsewhere`: the messages of its hours that are in later windows."""

    window: str
    state: State | Literal["uncommitted", "refused"]
    late_elsewhere: int = 0


class ShownStates(msgspec.Struct, frozen=True):
    """The document of `state`.

    `watermark`: null if not even one label is proven. `holding`: who holds it back.
    """

    pipeline: str
    watermark: datetime | None
    holding: tuple[TopicPartition, ...]
    windows: tuple[ShownState, ...]


def show_states(output: Output, path: Path, text: str) -> None:
    """Shows the states of the named windows.

    Raises:
        NotClosedError: one of them is open, or isn't committed.
    """
    spec = load_spec(path)
    refuse_batches(spec)
    windows = windows_named(spec, text)
    pipeline = assemble.assemble_to_look(spec)
    receipts = [found.receipt for found in pipeline.sink.looks(windows) if found is not None]
    if not receipts:
        refuse_other_table(pipeline)
    start, _ = windows[0].span or (pipeline.now(), None)
    since = labels_between(spec.window.grid, start, pipeline.now())
    found = completeness_of(pipeline, len(since) + 1, receipts)
    refused = refused_windows(pipeline.ledger, spec)
    committed = {receipt.window.key for receipt in receipts}
    states = tuple(
        ShownState(key, found.windows[key].state, found.windows[key].late_elsewhere)
        if key in committed
        else ShownState(key, "refused" if window in refused else "uncommitted")
        for window in windows
        for key in (window.key,)
    )
    late = ", {} of its hours in later windows"
    output.show(
        ShownStates(spec.id, found.watermark, found.holding, states),
        *(
            Text(f"{each.window}: {each.state}")
            + (late.format(counted(each.late_elsewhere, "message")) if each.late_elsewhere else "")
            for each in states
        ),
    )
    missing, opened = (
        [each.window for each in states if each.state in some]
        for some in ({"uncommitted", "refused"}, {"open"})
    )
    if missing:
        raise NotClosedError(
            f"{_which(missing, spec.id)} committed",
            "check",
            f"`windrow run SPEC --window {missing[0]}` commits it, or says why not.",
        )
    if opened:
        raise NotClosedError(
            f"{_which(opened, spec.id)} complete",
            "check",
            holding_in_words(found, pipeline.ledger.newest(spec.id)[-1]),
        )


def _which(windows: Sequence[str], pipeline: str) -> str:
    several = len(windows) > 1
    return f"{first_few(windows)} of {pipeline} {'are' if several else 'is'} not"
