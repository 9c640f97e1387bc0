"""`init`: the two files of a new pipeline. Loaded only when the command runs."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from ingest.assemble import connect
from ingest.cli.output import Output
from ingest.model.label import instant
from ingest.operate.begin import DELAY, Asked, Begun, begin
from ingest.windows.grid import BATCH, after


def begin_pipeline(output: Output, folder: Path, asked: Asked) -> None:
    """Write the files, say how well they fit the topic, and what to type next; its document is `Begun`."""
    if asked.topic is not None:
        output.say(f"Asking {asked.bootstrap} for messages of {asked.topic}")
    begun = begin(folder, asked, connect, datetime.now(UTC))
    output.show(begun, *map(Text, _told(begun, asked)))


def _told(begun: Begun, asked: Asked) -> list[str]:
    lines = [f"Wrote {begun.spec} and {begun.schema}."]
    if begun.why is None:
        columns = "1 column" if begun.columns == 1 else f"{begun.columns} columns"
        lines.append(f"{columns}, guessed from {begun.sampled:,} messages of {asked.topic}, of which {begun.fitting:,} fit.")
    else:
        lines.append(f"The columns are an example: {begun.why}. Change both files before the first run.")
    if begun.refused:
        refused = ", ".join(f"{n:,}: {why}" for why, n in begun.refused)
        lines.append(f"Refused would be {refused}; limits.max_dead_ratio says how many may be.")
    return [*lines, *_next(begun)]


def _next(begun: Begun) -> list[str]:
    spec = shlex.quote(begun.spec)
    if begun.grid == BATCH:
        return ["Next, micro-batches:", f"  windrow plan {spec}", f"  windrow run {spec} --drain"]
    window = "W" if begun.start is None else instant(begun.start)
    lines = [f"  windrow plan {spec} --window {window}", f"  windrow run {spec} --window {window}"]
    if begun.window is None and begun.start is not None:
        return [f"Next, from {instant(after(begun.grid, begun.start) + DELAY)} on, when the first window is closed:", *lines]
    return ["Next:", *lines]
