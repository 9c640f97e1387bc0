"""`show`, `verify` and `doctor`: what there is, and whether it is right. Loaded only when a command runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
from rich.text import Text

from ingest.assemble import assemble_to_look, open_table
from ingest.cli import render
from ingest.cli.output import Output
from ingest.model.receipt import Committed
from ingest.model.window import Window
from ingest.operate.dead_letters import read_dead, refused_attempts
from ingest.run.binding import refuse_other_table
from ingest.spec.load import load_spec
from ingest.spec.windows import windows_named


class ShownWindows(msgspec.Struct):
    """The document of `show`. `left_out`: whether there are older ones beyond the limit."""

    pipeline: str
    windows: list[Committed]
    left_out: bool


class RefusedAttempt(msgspec.Struct, frozen=True):
    """The newest attempt at a window that isn't committed, of which there are dead letters."""

    window: str
    attempt: str


class ShownDead(msgspec.Struct):
    """The document of `show --dead`. Keys and values, where asked for, are base64. `left_out`: whether there are more beyond the limit.

    `refused`: of the windows asked for those that aren't committed and have dead letters all the same. They are among `dead` if the
    window was named.
    """

    pipeline: str
    dead: list[render.DeadLetter]
    left_out: bool
    refused: list[RefusedAttempt] = []


def show_windows(output: Output, path: Path, text: str | None, limit: int) -> None:
    """The newest committed windows, by the sink's own receipts."""
    spec = load_spec(path)
    wanted = None if text is None else set(windows_named(spec, text))
    found = (c for c in open_table(spec)[0].receipts() if wanted is None or c.receipt.window in wanted)
    committed = sorted(found, key=lambda c: c.receipt.window)
    if not committed:
        refuse_other_table(assemble_to_look(spec))
    shown = committed[-limit:]
    older = len(committed) - len(shown)
    left = [Text(f"{older} older ones are not shown (--limit)")] if older else []
    table = render.window_table(shown) if shown else Text(f"Nothing is committed {'yet' if text is None else f'in {text}'}.")
    output.show(ShownWindows(spec.id, shown, left_out=older > 0), table, *left)


def show_dead(output: Output, path: Path, text: str | None, attempt: str | None, limit: int, *, payload: bool) -> None:
    """Dead letters of the windows asked for, or of all committed ones that have any.

    Of the attempt that is committed; of a window that isn't, of the newest one; or of the `attempt` that is named.
    """
    spec = load_spec(path)
    asked = None if text is None else windows_named(spec, text)
    sink, dead_letters = open_table(spec)
    windows = sorted(c.receipt.window for c in sink.receipts() if c.receipt.counts.dead) if asked is None else asked
    refused = refused_attempts(sink, dead_letters, asked) if attempt is None else {}
    attempts = [(w, attempt or refused.get(w.key)) for w in windows]
    tables = (read_dead(sink, dead_letters, window, limit + 1, of) for window, of in attempts)
    rows = zip((window for window, _ in attempts), tables, strict=True)
    found = list(islice(_letters(rows, payload=payload), limit + 1))
    letters, more = found[:limit], len(found) > limit
    lines = [Text("There are more, which are not shown (--limit)")] if more else []
    lines += render.refused_lines(refused, path, above=asked is not None)
    table = render.dead_table(letters, payload=payload) if letters else Text(_no_dead(text, attempt))
    of = [RefusedAttempt(*one) for one in sorted(refused.items())]
    output.show(ShownDead(spec.id, letters, more, of), table, *lines)


def _no_dead(text: str | None, attempt: str | None) -> str:
    of = "" if attempt is None else f" of attempt {attempt}"
    return f"There are no dead letters{of}{'' if text is None else f' in {text}'}."


def _letters(tables: Iterable[tuple[Window, pa.Table]], *, payload: bool) -> Iterator[render.DeadLetter]:
    for window, rows in tables:
        yield from render.dead_letters(window, rows.to_pylist(), payload=payload)


def verify_all(output: Output, path: Path, *, deep: bool) -> None:
    """Receipts against ledger, rows and topics, with `deep` against all that is read back; its document is `Verified`."""
    from ingest.operate.verify import verify

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    verified = verify(
        spec.id, pipeline.sink, pipeline.dead_letters, pipeline.ledger, pipeline.broker, spec.source.on_removed, deep=deep
    )  # fmt: skip
    wrong = sum(f.level == "wrong" for f in verified.findings)
    unchecked = sum(f.level == "unchecked" for f in verified.findings)
    said = f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong" if wrong else "nothing is wrong"
    summary = f"{verified.windows} windows, {verified.rows:,} rows: {said}"
    if unchecked:
        summary += f"; {unchecked} {'thing' if unchecked == 1 else 'things'} could not be checked"
    output.show(verified, *map(render.finding_line, verified.findings), Text(summary))
    output.exit_code = verified.exit_code


def restore_receipts(output: Output, path: Path, *, yes: bool) -> None:
    """Lost receipts from the ledger's copies, put back only if `yes`; its document is `Restored`."""
    from ingest.operate.restore import restore

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    found = restore(spec.id, pipeline.sink, pipeline.ledger, dry_run=not yes)
    count = f"{len(found.windows)} receipt{'' if len(found.windows) == 1 else 's'}"
    if not found.windows:
        end = "Nothing was restored." if found.failed else "Nothing to restore: every committed window has its receipt."
    else:
        end = f"Restored: {count}." if yes else f"Nothing was written; add --yes to restore {count}."
    lines = [Text(f"{key}: the ledger's copy is the text that was committed") for key in found.windows]
    output.show(found, *lines, *map(render.finding_line, found.failed), Text(end))
    output.exit_code = found.exit_code


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
    from ingest.operate.rebuild import rebuild

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    done = rebuild(spec.id, pipeline.sink, pipeline.ledger)
    what = f"The ledger holds {done.boundaries} boundaries, {done.windows} plans and receipts ({done.grid}); its id is {done.ledger}."
    output.show(done, Text("\n".join([what, *done.notes])))
