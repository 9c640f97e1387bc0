"""`dead show` and `dead export`: what was refused, and why. Loaded only when a command runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
from rich.text import Text

from windrow.ingest.admin.dead_letters import (
    PAYLOAD,
    Chosen,
    documents,
    letters_of,
    refused_attempts,
)
from windrow.ingest.admin.files import Take, write_file
from windrow.ingest.assemble import open_table
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import windows_named
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.window import Window
from windrow.ingest.sinks.columns import DEAD_LETTERS


class RefusedAttempt(msgspec.Struct, frozen=True):
    """The newest attempt at a window that isn't committed, of which there are dead letters."""

    window: str
    attempt: str


class ShownDead(msgspec.Struct):
    """The document of `dead show`.

    Keys and values, where asked for, are base64. `left_out`: whether there are more
    beyond the limit.

    `refused`: of the windows asked for those that aren't committed and have dead
    letters all the same. They are among `dead` if the window was named.
    """

    pipeline: str
    dead: list[render.DeadLetter]
    left_out: bool
    refused: list[RefusedAttempt] = []


class ExportedDead(msgspec.Struct):
    """The document of `dead export`: how many dead letters the file holds.

    `refused`: as of `dead show`.
    """

    pipeline: str
    file: str
    dead: int
    refused: list[RefusedAttempt] = []


class DeadRequest(msgspec.Struct, frozen=True):
    """Which dead letters a command is about, as it was typed.

    `attempt`: one that was refused; None: the one that counts.
    """

    window: str | None
    chosen: Chosen
    attempt: str | None
    payload: bool


def show_dead(output: Output, path: Path, asked: DeadRequest, limit: int) -> None:
    """Dead letters of the windows asked for, or of all committed ones that have any, to
    the screen.
    """
    spec = load_spec(path)
    refused, batches = _asked_for(spec, asked)
    rows = (
        letter
        for window, batch in batches
        for letter in render.dead_letters(window, batch.to_pylist(), payload=asked.payload)
    )
    found = list(islice(rows, limit + 1))
    letters, more = found[:limit], len(found) > limit
    lines = [Text("There are more, which are not shown (--limit)")] if more else []
    lines += render.refused_lines(refused, path, above=asked.window is not None)
    table = render.dead_table(letters, payload=asked.payload) if letters else Text(no_dead(asked))
    output.show(ShownDead(spec.id, letters, more, _attempts(refused)), table, *lines)


def export_dead(output: Output, path: Path, asked: DeadRequest, file: Path) -> None:
    """The same to a file, all of them. Without payload it has no columns for it."""
    spec = load_spec(path)
    refused, batches = _asked_for(spec, asked)
    schema = (
        DEAD_LETTERS
        if asked.payload
        else pa.schema([f for f in DEAD_LETTERS if f.name not in PAYLOAD])
    )

    def read(take: Take) -> None:
        for window, batch in batches:
            take(
                batch.append_column(
                    DEFAULT["window"], pa.repeat(window.key, batch.num_rows)
                ).select(schema.names)
            )

    count = write_file(file, schema, documents, read)
    lines = render.refused_lines(refused, path, above=asked.window is not None)
    output.show(
        ExportedDead(spec.id, str(file), count, _attempts(refused)),
        Text(f"{file} holds {count:,} dead letters."),
        *lines,
    )


def _asked_for(
    spec: PipelineSpec, asked: DeadRequest
) -> tuple[dict[str, str], Iterator[tuple[Window, pa.RecordBatch]]]:
    """The windows asked for that aren't committed (key -> newest attempt), and the dead
    letters, batch by batch, each with its window.

    Of the attempt that is committed; of a window that isn't, of the newest one; or of
    the attempt that is named.
    """
    windows = None if asked.window is None else windows_named(spec, asked.window)
    sink, store = open_table(spec)
    committed = {c.receipt.window: c.receipt for c in sink.receipts()}
    refused = refused_attempts(sink, store, windows) if asked.attempt is None else {}

    def batches() -> Iterator[tuple[Window, pa.RecordBatch]]:
        for window in sorted(committed) if windows is None else windows:
            receipt = committed.get(window)
            attempt = asked.attempt or refused.get(window.key)
            if attempt is None and receipt is not None and asked.chosen.may_be_in(receipt):
                attempt = receipt.attempt
            for batch in letters_of(store, window, attempt) if attempt is not None else ():
                yield window, batch.filter(pa.array(asked.chosen.mask(batch)))

    return refused, batches()


def _attempts(refused: dict[str, str]) -> list[RefusedAttempt]:
    return [RefusedAttempt(*one) for one in sorted(refused.items())]


def no_dead(asked: DeadRequest) -> str:
    """What is said where there are none."""
    kind = "".join(
        f" {name} {value}"
        for name, value in (("of stage", asked.chosen.stage), ("with reason", asked.chosen.reason))
        if value
    )
    of = "" if asked.attempt is None else f" of attempt {asked.attempt}"
    return (
        "There are no dead"
        f" letters{kind}{of}{'' if asked.window is None else f' in {asked.window}'}."
    )
