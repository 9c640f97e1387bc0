"""`dead show` and `dead replay`. Imported only when such a command runs."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.chosen_dead_letters import (
    PAYLOAD,
    Chosen,
    dead_letters_of,
    documents,
    refused_attempts,
)
from windrow.ingest.admin.dead_replay import (
    DeadReplayRequest,
    DeadReplayResult,
    replay_dead_letters,
)
from windrow.ingest.admin.edit_function import load_edit
from windrow.ingest.admin.export import write_file
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec, windows_named
from windrow.ingest.errors import format_count
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.reader import Take
from windrow.ingest.runner.run_windows import (
    one_by_one,
    pass_over_refused,
    refused_last,
    stop_at_refused,
)
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_LETTERS


class RefusedAttempt(msgspec.Struct, frozen=True):
    """A window that isn't committed, and its newest attempt with dead letters."""

    window: str
    attempt: str


class ShownDead(msgspec.Struct):
    """The document of `dead show`.

    Attributes:
        pipeline: the id of the pipeline.
        dead: the dead letters. Keys and values, which need `--payload`, are base64.
        has_more: whether there are more than the limit.
        refused: windows that aren't committed and have dead letters. These dead letters are
            in `dead` if the window was named.
        reasons: the number of all dead letters by reason, also beyond the limit; left out
            if there are none.
    """

    pipeline: str
    dead: list[render.DeadLetter]
    has_more: bool = msgspec.field(name="left_out")
    refused: list[RefusedAttempt] = []
    reasons: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


class ExportedDead(msgspec.Struct):
    """The document of `dead show --out`.

    Attributes:
        pipeline: the id of the pipeline.
        file: the path of the file.
        dead: the number of dead letters in the file.
        refused: windows that aren't committed and have dead letters.
    """

    pipeline: str
    file: str
    dead: int
    refused: list[RefusedAttempt] = []


class DeadRequest(msgspec.Struct, frozen=True):
    """The dead letters that a command is about.

    Attributes:
        window: the windows that `--window` names; None: all committed ones.
        chosen: the stage and the reason.
        attempt: a refused attempt; None: the committed attempt, or else the newest one.
        payload: whether to show keys and values.
    """

    window: str | None
    chosen: Chosen
    attempt: str | None
    payload: bool


def show_dead(
    output: Output, path: Path, dead_request: DeadRequest, limit: int, file: Path | None
) -> None:
    """Shows dead letters of the named windows or of all committed ones, or writes them to a file.

    The file has key, value and headers only with payload.
    """
    spec = load_spec(path)
    refused, receipts, batches = _read(spec, dead_request)
    attempts = [
        RefusedAttempt(*window_and_attempt) for window_and_attempt in sorted(refused.items())
    ]
    lines = render.refused_lines(refused, path, above=dead_request.window is not None)
    if file is not None:
        count = _write(file, batches, payload=dead_request.payload)
        text = Text(f"{file} holds {format_count(count, 'dead letter')}.")
        output.show(ExportedDead(spec.id, str(file), count, attempts), text, *lines)
        return
    dead, reasons = list[render.DeadLetter](), Counter[str]()
    for window, batch in batches:
        dead += render.dead_letters(
            window, batch.slice(0, limit - len(dead)).to_pylist(), payload=dead_request.payload
        )
        counts = batch["reason"].value_counts().to_pylist()
        reasons.update({reason_count["values"]: reason_count["counts"] for reason_count in counts})
        if (
            dead_request.window is None
            and dead_request.chosen.stage is None
            and reasons.total() > limit
        ):
            # counted by the receipts, because the others may be in thousands of windows
            reasons = dead_request.chosen.count_by_reason(receipts)
            break
    table = (
        render.dead_table(dead, payload=dead_request.payload)
        if dead
        else Text(no_dead_sentence(dead_request))
    )
    has_more, by_reason = reasons.total() > limit, dict(reasons.most_common())
    numbers = ", ".join(f"{count:,} {reason}" for reason, count in by_reason.items())
    lines = [*([Text(numbers)] if dead else []), *render.not_shown(more=has_more), *lines]
    output.show(
        ShownDead(spec.id, dead, has_more, attempts, by_reason or msgspec.UNSET), table, *lines
    )


def _write(file: Path, batches: Iterator[tuple[Window, pa.RecordBatch]], *, payload: bool) -> int:
    """Writes dead letters to a file; returns their number."""
    hidden_columns = () if payload else PAYLOAD
    schema = pa.schema([field for field in DEAD_LETTERS if field.name not in hidden_columns])

    def read(take: Take) -> None:
        for window, batch in batches:
            windowed_batch = batch.append_column(
                DEFAULT["window"], pa.repeat(window.key, batch.num_rows)
            )
            take(windowed_batch.select(schema.names))

    return write_file(file, schema, documents, read)


def _read(
    spec: PipelineSpec, dead_request: DeadRequest
) -> tuple[dict[str, str], Iterable[Receipt], Iterator[tuple[Window, pa.RecordBatch]]]:
    """Returns the uncommitted windows (key -> newest attempt), the receipts, and the dead letters.

    Dead letters come batch by batch, each with its window. They are those of the named
    attempt. Without one, they are of the window's committed attempt, or of its newest
    attempt if it isn't committed.
    """
    windows = None if dead_request.window is None else windows_named(spec, dead_request.window)
    sink, store = assemble.open_table(spec)
    table_windows = sink.receipts() if windows is None else sink.looks(windows)
    committed = {
        table_window.receipt.window: table_window.receipt
        for table_window in table_windows
        if table_window is not None
    }
    refused = refused_attempts(store, committed, windows) if dead_request.attempt is None else {}

    def batches() -> Iterator[tuple[Window, pa.RecordBatch]]:
        for window in sorted(committed) if windows is None else windows:
            receipt = committed.get(window)
            attempt = dead_request.attempt or refused.get(window.key)
            if attempt is None and receipt is not None and dead_request.chosen.may_be_in(receipt):
                attempt = receipt.attempt
            for batch in dead_letters_of(store, window, attempt) if attempt is not None else ():
                yield window, batch.filter(pa.array(dead_request.chosen.mask(batch)))

    return refused, committed.values(), batches()


def no_dead_sentence(dead_request: DeadRequest) -> str:
    """Returns the sentence for the case that there are no such dead letters."""
    kind = "".join(
        f" {name} {value}"
        for name, value in (
            ("of stage", dead_request.chosen.stage),
            ("with reason", dead_request.chosen.reason),
        )
        if value
    )
    of_attempt = "" if dead_request.attempt is None else f" of attempt {dead_request.attempt}"
    return (
        f"There are no dead letters{kind}{of_attempt}"
        f"{'' if dead_request.window is None else f' in {dead_request.window}'}."
    )


class DeadReplayResults(msgspec.Struct):
    """The document of `dead replay`: the result of each window.

    With `dry_run` it is the result that a replay would have.
    """

    pipeline: str
    windows: list[DeadReplayResult]
    dry_run: bool


def replay_dead(
    output: Output,
    path: Path,
    dead_request: DeadRequest,
    script: Path | None,
    *,
    dry_run: bool,
    keep_going: bool,
    anyway: bool,
) -> None:
    """Replays dead letters of committed windows, one window after the other.

    Windows that were committed before a failure stay committed.

    Args:
        output: the command's output.
        path: the pipeline's file.
        dead_request: the dead letters to replay.
        script: the file with the function that edits messages; None: they aren't edited.
        dry_run: only count the messages that would be accepted.
        keep_going: continue after refused windows.
        anyway: replay even if the pipeline is paused.
    """
    spec = load_spec(path)
    edit = None if script is None else load_edit(script)
    pipeline = replace(assemble.assemble(spec), before_commit=output.raise_if_interrupted)
    windows = None if dead_request.window is None else windows_named(spec, dead_request.window)
    if windows is None:
        windows = sorted(
            c.receipt.window
            for c in pipeline.sink.receipts()
            if dead_request.chosen.may_be_in(c.receipt) and c.receipt.expired_at is None
        )
    document = DeadReplayResults(spec.id, [], dry_run)
    request = DeadReplayRequest(
        f"command-{uuid.uuid4().hex}", dead_request.chosen, edit, dry_run, anyway
    )
    output.show(document)
    results = one_by_one(
        windows,
        lambda window: replay_dead_letters(pipeline, window, request),
        pass_over_refused(pipeline) if keep_going else stop_at_refused,
    )
    try:
        document.windows.extend(refused_last(results, len(windows)))
    finally:  # also after a failure, to show the windows before it
        if document.windows:
            table = render.dead_replay_table(document.windows)
            output.show(document, table, *render.still_refused(document.windows))
    none = [] if document.windows else [Text(no_dead_sentence(dead_request))]
    output.show(document, *none, *([Text("Nothing was written (--dry-run).")] if dry_run else []))
