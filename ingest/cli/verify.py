"""`verify`: compares a table with its receipts. Imported only when the command runs."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import format_count


def verify_all(output: Output, path: Path, *, deep: bool) -> None:
    """Compares receipts with ledger, rows and topics. The document is `Verified`.

    Args:
        output: the command's output.
        path: the pipeline's file.
        deep: also compare all rows and dead letters with the receipts' checksums.
    """
    from windrow.ingest.admin.verify import verify

    spec = load_spec(path)
    pipeline = assemble.assemble_to_look(spec)
    verified = verify(
        spec.id,
        pipeline.sink,
        pipeline.dead_letters,
        pipeline.ledger,
        pipeline.broker,
        spec.source.on_removed,
        deep=deep,
        dead_topic=None if spec.dead_letters is None else spec.dead_letters.topic,
        sleep=pipeline.sleep,
    )
    wrong_count = sum(f.level == "wrong" for f in verified.findings)
    unchecked_count = sum(f.level == "unchecked" for f in verified.findings)
    verdict = f"{format_count(wrong_count, 'thing')} wrong" if wrong_count else "nothing is wrong"
    windows, rows = format_count(verified.windows, "window"), format_count(verified.rows, "row")
    summary = f"{windows}, {rows}: {verdict}"
    if unchecked_count:
        summary += f"; {format_count(unchecked_count, 'thing')} could not be checked"
    output.show(verified, *map(render.finding_line, verified.findings), Text(summary))
    output.exit_code = verified.exit_code


def restore_receipts(output: Output, path: Path, *, yes: bool) -> None:
    """Restores lost receipts and lists of windows if `yes`, else shows them.

    The document is `Restored`.
    """
    from windrow.ingest.admin.receipts import restore

    spec = load_spec(path)
    pipeline = assemble.assemble_to_look(spec)
    restored = restore(spec.id, pipeline.sink, pipeline.ledger, dry_run=not yes)
    # after the table of rows: if that is refused, nothing was written
    dead_restored = pipeline.dead_letters.restore(dry_run=not yes)
    receipts = [format_count(len(restored.windows), "receipt")] if restored.windows else []
    lists = ["the list of windows"] if restored.listed or dead_restored else []
    count = " and ".join(receipts + lists)
    if not count:
        end = (
            "Nothing was restored."
            if restored.failed
            else "Nothing to restore: every window that the table holds has its receipt, and"
            f" windrow lag {path} names those that it lacks."
        )
    else:
        end = (
            f"Restored: {count}." if yes else f"Nothing was written; add --yes to restore {count}."
        )
    lines = [
        Text(f"{key}: the ledger's copy is the text that was committed") for key in restored.windows
    ]
    listed = [*chain(*restored.listed.values()), *(["dead letters"] if dead_restored else [])]
    lines += [Text(f"{key}: in the table, and back in its list") for key in listed]
    output.show(restored, *lines, *map(render.finding_line, restored.failed), Text(end))
    output.exit_code = restored.exit_code
