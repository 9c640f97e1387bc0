"""`show`: the committed windows. Loaded only when the command runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.lag import Uncommitted, unbroken, uncommitted, uncommitted_in_words
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import windows_named
from windrow.ingest.model.receipt import Committed
from windrow.ingest.runner.ownership import refuse_other_table
from windrow.ingest.runner.start_and_stop import DONE


class ShownWindows(msgspec.Struct):
    """The document of `show`. `left_out`: whether there are older ones than those shown.

    `uncommitted`: windows before those shown that were refused, or never run, but for those that
    only a longer list would show. `done`: whether
    the newest one reaches the end that `window.stop` was when it was run.
    """

    pipeline: str
    windows: list[Committed]
    left_out: bool
    uncommitted: list[Uncommitted]
    done: bool = False


def show_windows(output: Output, path: Path, text: str | None, limit: int) -> None:
    """Shows the newest committed windows, by the sink's own receipts."""
    spec = load_spec(path)
    wanted = None if text is None else set(windows_named(spec, text))
    sink, _ = assemble.open_table(spec)
    found = (c for c in sink.receipts() if wanted is None or c.receipt.window in wanted)
    committed = sorted(found, key=lambda c: c.receipt.window)
    if not committed:
        refuse_other_table(assemble.assemble_to_look(spec))
    shown = committed[-limit:]
    older = len(committed) - len(shown)
    series = unbroken(c.receipt for c in shown)
    left_out = uncommitted(spec.window, series, since_start=not older and text is None)
    done = bool(committed) and committed[-1].receipt.done
    left = [
        *([f"{older} older ones are not shown (--limit)"] if older else []),
        *([uncommitted_in_words(left_out)] if left_out else []),
        *([DONE] if done else []),
    ]
    told = [*render.ignored_lines([one.receipt for one in shown]), *map(Text, left)]
    table = (
        render.window_table(shown)
        if shown
        else Text(f"Nothing is committed {'yet' if text is None else f'in {text}'}.")
    )
    output.show(ShownWindows(spec.id, shown, older > 0, left_out, done), table, *told)
