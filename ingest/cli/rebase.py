"""`rebase` and `rebind`: a pipeline continues with another topic, cluster or table.

Imported only when such a command runs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.rebase import propose, rebase
from windrow.ingest.admin.rebind import propose as propose_rebind
from windrow.ingest.admin.rebind import rebind
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.model.boundary import Boundary, label_text
from windrow.ingest.model.source import parse_initializer


class Rebased(msgspec.Struct):
    """The document of `rebase`.

    Attributes:
        pipeline: the id of the pipeline.
        changes: the changes.
        boundary: the boundary at which windows continue.
        recorded: False if this is only a proposal.
    """

    pipeline: str
    changes: tuple[str, ...]
    boundary: Boundary
    recorded: bool


def rebase_pipeline(output: Output, path: Path, start: str | None, *, yes: bool) -> None:
    """Shows how the pipeline continues with another topic or cluster; records it if `yes`."""
    spec = load_spec(path)
    begin = None if start is None else parse_initializer(start, spec.source.topic_names())
    pipeline = assemble.assemble(spec)
    proposal = rebase(pipeline, begin) if yes else propose(pipeline, begin)
    label = label_text(proposal.boundary.label)
    end = (
        f"Recorded: windows from {label} on go on from here."
        if yes
        else f"Nothing was recorded; add --yes to go on so from {label}."
    )
    lines = [Text(change) for change in proposal.changes]
    output.show(
        Rebased(spec.id, proposal.changes, proposal.boundary, recorded=yes),
        *lines,
        render.rebase_table(proposal.boundary),
        Text(end),
    )


class Rebound(msgspec.Struct):
    """The document of `rebind`.

    Attributes:
        pipeline: the id of the pipeline.
        previous_table: the table until now.
        table: the new table.
        table_exists: whether the new table exists.
        windows: the number of its committed windows.
        missing: the windows that are committed by the ledger and missing in the table.
        recorded: False if this is only a proposal.
    """

    pipeline: str
    previous_table: str | None = msgspec.field(name="before")
    table: str
    table_exists: bool = msgspec.field(name="there")
    windows: int
    missing: list[str]
    recorded: bool


def rebind_pipeline(output: Output, path: Path, *, yes: bool) -> None:
    """Shows how the pipeline continues with another table; records it if `yes`."""
    spec = load_spec(path)
    pipeline = assemble.assemble(spec)
    proposal = rebind(pipeline) if yes else propose_rebind(pipeline)
    end = (
        "Recorded: the pipeline goes on with this table."
        if yes
        else "Nothing was recorded; add --yes to go on so."
    )
    document = Rebound(
        spec.id,
        proposal.previous_table,
        proposal.table,
        proposal.exists,
        proposal.windows,
        [w.key for w in proposal.missing],
        recorded=yes,
    )
    output.show(document, *map(Text, proposal.changes), Text(end))
