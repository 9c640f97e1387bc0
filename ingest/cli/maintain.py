"""`maintain`: joins files, expires versions, removes files. Imported only when it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.maintain import maintain_tables
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import format_count
from windrow.ingest.ports.sink import Maintained


class ShownMaintenance(msgspec.Struct):
    """The document of `maintain`: what was changed, or would be."""

    pipeline: str
    dry_run: bool
    maintained: Maintained


def maintain_table(output: Output, path: Path, *, dry_run: bool) -> None:
    """Maintains the table and its dead letters, or shows what that would change."""
    spec = load_spec(path)
    tables = assemble.open_table(spec)
    maintained = maintain_tables(spec, tables, lambda: assemble.open_ledger(spec), dry_run=dry_run)
    output.show(
        ShownMaintenance(spec.id, dry_run, maintained),
        *map(Text, maintained.removed_files),
        Text(_sentence(maintained, dry_run=dry_run)),
    )


def _sentence(maintained: Maintained, *, dry_run: bool) -> str:
    if maintained == Maintained():
        return "Nothing to do."
    joined, new = (
        format_count(count, "file") for count in (maintained.joined_files, maintained.new_files)
    )
    expired, removed = maintained.expired_versions, len(maintained.removed_files)
    rows, dead = maintained.expired_rows, maintained.expired_dead_letters
    acts = (
        (f"{joined} joined in {new}", maintained.joined_files),
        (f"{format_count(expired, 'snapshot')} expired", expired),
        (f"{format_count(dead, 'dead letter')} expired", dead),
        (f"{format_count(rows, 'row')} expired", rows),
        (f"{format_count(removed, 'file')} removed", removed),
    )
    done = ", ".join(act for act, count in acts if count)
    return f"Nothing was changed. Without --dry-run: {done}." if dry_run else f"{done}."
