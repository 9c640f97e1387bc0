"""`due`: which windows are closed, and neither committed nor refused. Loaded only when it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import counted, first_few
from windrow.ingest.runner.due import closed_windows, due, refused_windows
from windrow.ingest.runner.ownership import refuse_other_table


class Due(msgspec.Struct, frozen=True):
    """The document of `due`: windows by their starts, the oldest first.

    `windows`: those that are due. `refused`: those that a person decides about. `older`:
    uncommitted ones among the 1,000 before, which are too old for a schedule.
    """

    pipeline: str
    windows: tuple[str, ...]
    refused: tuple[str, ...]
    older: tuple[str, ...]


def show_due(output: Output, path: Path) -> None:
    """Shows the windows that a schedule would run now.

    Raises:
        SpecError: the pipeline has micro-batches.
    """
    spec = load_spec(path)
    pipeline = assemble.assemble_to_look(spec)
    earlier, windows = closed_windows(spec, pipeline.now())
    committed = pipeline.sink.committed([*earlier, *windows])
    if not committed:
        refuse_other_table(pipeline)
    found, refused = due(spec, windows, committed, refused_windows(pipeline.ledger, spec))
    older = [one for one in earlier if one not in committed]
    shown = Due(spec.id, *(tuple(one.key for one in some) for some in (found, refused, older)))
    notes = []
    if shown.refused:
        behind = " Those behind the first one can only follow in order." if spec.in_order else ""
        few = first_few(shown.refused)
        notes.append(f"A person decides about what was refused: {few}.{behind}")
    if older:
        notes.append(
            f"Not committed, and too old for a schedule: {counted(len(older), 'window')}, the first"
            f" at {shown.older[0]}. windrow run SPEC --window START/END commits them."
        )
    output.show(
        shown,
        *map(Text, shown.windows or ["No closed window is waiting."]),
        *(Text(note, style="yellow") for note in notes),
    )
