"""`pause` and `resume`: no window of a pipeline begins in between.

Imported only when such a command runs.
"""

from __future__ import annotations

from getpass import getuser
from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.ledger_records import Pause

LONGEST = 500
"""The maximum number of characters of a name or a reason, because messages quote them."""


class PauseState(msgspec.Struct):
    """The document of `pause` and `resume`.

    Attributes:
        pipeline: the id of the pipeline.
        pause: the newest record; null if there is none yet.
        recorded: whether this command made the record.
        replaced: the pause that the record replaced or ended.
    """

    pipeline: str
    pause: Pause | None
    recorded: bool
    replaced: Pause | None = None


def set_paused(output: Output, path: Path, *, paused: bool, who: str | None, reason: str) -> None:
    """Records a pause or its end in the ledger. A pipeline that isn't paused is not resumed."""
    pipeline = assemble.assemble_to_look(load_spec(path))
    name, ledger = pipeline.spec.id, pipeline.ledger
    who = getuser() if who is None else who
    for option, text in (("--who", who), ("--why", reason)):
        if not text.isprintable() or len(text) > LONGEST:
            raise SpecError(
                f"{option} can't be shown in messages",
                "spec",
                f"Write one line of at most {LONGEST} characters.",
            )
    newest = ledger.pause(name)
    if not paused and not (newest and newest.paused):
        output.show(
            PauseState(name, newest, recorded=False), Text(f"Pipeline {name} isn't paused.")
        )
        return
    number = 0 if newest is None else newest.number + 1
    requested_pause = Pause(number, paused, who, reason, pipeline.now().replace(microsecond=0))
    recorded = ledger.put_pause(name, requested_pause)
    if recorded != requested_pause:
        raise RefusedError(
            f"Meanwhile somebody else was here: pipeline {name} {recorded}",
            "ledger",
            "Decide anew, and call the command again if need be.",
        )
    end = (
        ". Windows that are being read are finished, and no other one begins. windrow resume SPEC"
        " ends it."
        if paused
        else "."
    )
    effect = "takes the place of an earlier" if paused else "ended the"
    earlier_pause = newest if newest and newest.paused else None
    output.show(
        PauseState(name, recorded, recorded=True, replaced=earlier_pause),
        Text(f"Pipeline {name} {recorded}{end}"),
        *([Text(f"This {effect} pause: {name} {earlier_pause}.")] if earlier_pause else []),
    )
