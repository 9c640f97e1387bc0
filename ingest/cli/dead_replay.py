"""`dead replay`: dead letters become rows after all. Loaded only when a command runs."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.text import Text

from windrow.ingest.admin.dead_replay import (
    DeadReplayRequest,
    DeadReplayResult,
    replay_dead_letters,
)
from windrow.ingest.admin.edit import load_edit
from windrow.ingest.assemble import assemble
from windrow.ingest.cli import render
from windrow.ingest.cli.dead import DeadRequest, no_dead
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.window import windows_named
from windrow.ingest.runner.pipeline import never, one_by_one, passing_of, refused_last


class DeadReplayResults(msgspec.Struct):
    """The document of `dead replay`: what was replayed, window by window, or with
    `dry_run` what would be.
    """

    pipeline: str
    windows: list[DeadReplayResult]
    dry_run: bool


def replay_dead(
    output: Output,
    path: Path,
    asked: DeadRequest,
    script: Path | None,
    *,
    dry_run: bool,
    keep_going: bool,
) -> None:
    """Dead letters of committed windows through today's schema again, one window after
    the other; those before a failure stay as they are committed.

    `keep_going`: past windows that are refused.
    """
    spec = load_spec(path)
    edit = None if script is None else load_edit(script)
    pipeline = assemble(spec)
    windows = None if asked.window is None else windows_named(spec, asked.window)
    if windows is None:
        windows = sorted(
            c.receipt.window for c in pipeline.sink.receipts() if asked.chosen.may_be_in(c.receipt)
        )
    document = DeadReplayResults(spec.id, [], dry_run)
    request = DeadReplayRequest(f"command-{uuid.uuid4().hex}", asked.chosen, edit, dry_run)
    output.show(document)
    results = one_by_one(
        windows,
        lambda window: replay_dead_letters(pipeline, window, request),
        passing_of(pipeline) if keep_going else never,
    )
    try:
        document.windows.extend(refused_last(results, len(windows)))
    finally:  # what was done before a failure, too
        output.show(document, *_told(document))
    none = [] if document.windows else [Text(no_dead(asked))]
    output.show(document, *none, *([Text("Nothing was written (--dry-run).")] if dry_run else []))


def _told(document: DeadReplayResults) -> list[RenderableType]:
    return (
        [render.dead_replay_table(document.windows), *render.still_refused(document.windows)]
        if document.windows
        else []
    )
