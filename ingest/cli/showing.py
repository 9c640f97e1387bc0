"""`show`, `verify` and `doctor`: what there is, and whether it is right. Loaded only when a command runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
from rich.text import Text

from ingest.assemble import assemble_to_look, open_table
from ingest.cli import render
from ingest.cli.output import Output
from ingest.cli.windows import windows_of
from ingest.model import Committed, Window
from ingest.ports import Sink
from ingest.spec import load_spec


class Shown(msgspec.Struct):
    """The document of `show`. `left_out`: whether there are older ones beyond the limit."""

    pipeline: str
    windows: list[Committed]
    left_out: bool


class ShownDead(msgspec.Struct):
    """The document of `show --dead`. Keys and values, where asked for, are base64. `left_out`: whether there are more beyond the limit."""

    pipeline: str
    dead: list[render.DeadLetter]
    left_out: bool


def show_windows(output: Output, path: Path, text: str | None, limit: int) -> None:
    """The newest committed windows, by the sink's own receipts."""
    spec = load_spec(path)
    wanted = None if text is None else set(windows_of(spec, text))
    found = (c for c in open_table(spec).receipts() if wanted is None or c.receipt.window in wanted)
    committed = sorted(found, key=lambda c: c.receipt.window)
    shown = committed[-limit:]
    older = len(committed) - len(shown)
    left = [Text(f"{older} older ones are not shown (--limit)")] if older else []
    table = render.window_table(shown) if shown else Text(f"Nothing is committed {'yet' if text is None else f'in {text}'}.")
    output.show(Shown(spec.id, shown, left_out=older > 0), table, *left)


def show_dead(output: Output, path: Path, text: str | None, attempt: str | None, limit: int, *, payload: bool) -> None:
    """Dead letters of the windows asked for, or of all that have any; of their committed attempts, or of one that was refused."""
    spec = load_spec(path)
    asked = None if text is None else windows_of(spec, text)
    sink = open_table(spec)
    windows = sorted(c.receipt.window for c in sink.receipts() if c.receipt.counts.dead) if asked is None else asked
    found = list(islice(_dead(sink, windows, attempt, limit + 1, payload=payload), limit + 1))
    letters, more = found[:limit], len(found) > limit
    left = [Text("There are more, which are not shown (--limit)")] if more else []
    table = render.dead_table(letters, payload=payload) if letters else Text(_no_dead(text, attempt))
    output.show(ShownDead(spec.id, letters, left_out=more), table, *left)


def _no_dead(text: str | None, attempt: str | None) -> str:
    of = "" if attempt is None else f" of attempt {attempt}"
    return f"There are no dead letters{of}{'' if text is None else f' in {text}'}."


def _dead(sink: Sink, windows: list[Window], attempt: str | None, limit: int, *, payload: bool) -> Iterator[render.DeadLetter]:
    for window in windows:
        yield from render.dead_letters(window, sink.read_dead(window, limit, attempt).to_pylist(), payload=payload)


def verify_all(output: Output, path: Path) -> None:
    """Receipts against ledger, rows and topics; its document is `Verified`."""
    from ingest.tablerows import delta_rows
    from ingest.verify import verify

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    verified = verify(
        spec.id, pipeline.sink, pipeline.ledger, pipeline.broker, delta_rows(spec.sink_path(), spec.metadata), spec.source.on_removed
    )
    wrong = sum(f.level == "wrong" for f in verified.findings)
    unchecked = sum(f.level == "unchecked" for f in verified.findings)
    summary = f"{verified.windows} windows, {verified.rows:,} rows: " + (f"{wrong} things are wrong" if wrong else "nothing is wrong")
    if unchecked:
        summary += f"; {unchecked} {'thing' if unchecked == 1 else 'things'} could not be checked"
    output.show(verified, *map(render.finding_line, verified.findings), Text(summary))
    output.exit_code = verified.exit_code


def run_doctor(output: Output, path: Path | None) -> None:
    """One line per check."""
    from ingest.cli import doctor as checks

    found = []
    for check in checks.examine(path):
        found.append(check)
        output.show(checks.Examined(found), checks.check_line(check))
    output.exit_code = checks.exit_code(found)


def rebuild_ledger(output: Output, path: Path) -> None:
    """The ledger, restored from the receipts; its document is `Rebuilt`."""
    from ingest.rebuild import rebuild

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    done = rebuild(spec.id, pipeline.sink, pipeline.ledger)
    what = f"The ledger holds {done.boundaries} boundaries, {done.windows} plans and receipts ({done.grid}); its id is {done.ledger}."
    output.show(done, Text("\n".join([what, *done.notes])))
