"""`show`, `verify` and `doctor`: what there is, and whether it is right.

Loaded only when a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from windrow.ingest.assemble import assemble_to_look, open_table
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.window import windows_named
from windrow.ingest.model.receipt import Committed
from windrow.ingest.runner.ownership import refuse_other_table

if TYPE_CHECKING:
    from windrow.ingest.runner.spark.spark import SparkEngine


class ShownWindows(msgspec.Struct):
    """The document of `show`. `left_out`: whether there are older ones beyond the limit."""

    pipeline: str
    windows: list[Committed]
    left_out: bool


def show_windows(output: Output, path: Path, text: str | None, limit: int) -> None:
    """The newest committed windows, by the sink's own receipts."""
    spec = load_spec(path)
    wanted = None if text is None else set(windows_named(spec, text))
    found = (
        c for c in open_table(spec)[0].receipts() if wanted is None or c.receipt.window in wanted
    )
    committed = sorted(found, key=lambda c: c.receipt.window)
    if not committed:
        refuse_other_table(assemble_to_look(spec))
    shown = committed[-limit:]
    older = len(committed) - len(shown)
    left = [Text(f"{older} older ones are not shown (--limit)")] if older else []
    table = (
        render.window_table(shown)
        if shown
        else Text(f"Nothing is committed {'yet' if text is None else f'in {text}'}.")
    )
    output.show(ShownWindows(spec.id, shown, left_out=older > 0), table, *left)


def verify_all(output: Output, path: Path, *, deep: bool) -> None:
    """Receipts against ledger, rows and topics, with `deep` against all that is read
    back; its document is `Verified`.
    """
    from windrow.ingest.admin.verify import verify

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    verified = verify(
        spec.id,
        pipeline.sink,
        pipeline.dead_letters,
        pipeline.ledger,
        pipeline.broker,
        spec.source.on_removed,
        deep=deep,
        dead_topic=None if spec.dead_letters is None else spec.dead_letters.topic,
    )
    wrong = sum(f.level == "wrong" for f in verified.findings)
    unchecked = sum(f.level == "unchecked" for f in verified.findings)
    said = (
        f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong"
        if wrong
        else "nothing is wrong"
    )
    summary = f"{verified.windows} windows, {verified.rows:,} rows: {said}"
    if unchecked:
        summary += f"; {unchecked} {'thing' if unchecked == 1 else 'things'} could not be checked"
    output.show(verified, *map(render.finding_line, verified.findings), Text(summary))
    output.exit_code = verified.exit_code


def restore_receipts(output: Output, path: Path, *, yes: bool) -> None:
    """Lost receipts from the ledger's copies, put back only if `yes`; its document is
    `Restored`.
    """
    from windrow.ingest.admin.restore import restore

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    found = restore(spec.id, pipeline.sink, pipeline.ledger, dry_run=not yes)
    count = f"{len(found.windows)} receipt{'' if len(found.windows) == 1 else 's'}"
    if not found.windows:
        end = (
            "Nothing was restored."
            if found.failed
            else "Nothing to restore: every committed window has its receipt."
        )
    else:
        end = (
            f"Restored: {count}." if yes else f"Nothing was written; add --yes to restore {count}."
        )
    lines = [
        Text(f"{key}: the ledger's copy is the text that was committed") for key in found.windows
    ]
    output.show(found, *lines, *map(render.finding_line, found.failed), Text(end))
    output.exit_code = found.exit_code


def run_doctor(output: Output, path: Path | None, engine: SparkEngine | None = None) -> None:
    """One line per check.

    `engine`: where the pipeline's tasks are to run, if that is looked at, too.
    """
    from windrow.ingest.cli import doctor as checks

    found = []
    for check in checks.examine(path, engine):
        found.append(check)
        output.show(checks.Examined(found), checks.check_line(check))
    output.exit_code = checks.exit_code(found)


def rebuild_ledger(output: Output, path: Path) -> None:
    """The ledger, restored from the receipts; its document is `Rebuilt`."""
    from windrow.ingest.admin.rebuild import rebuild

    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    done = rebuild(spec.id, pipeline.sink, pipeline.ledger)
    what = (
        f"The ledger holds {done.boundaries} boundaries, {done.windows} plans and receipts"
        f" ({done.grid}); its id is {done.ledger}."
    )
    output.show(done, Text("\n".join([what, *done.notes])))
