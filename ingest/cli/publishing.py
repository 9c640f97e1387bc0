"""`dead publish`: dead letters to their topic. Loaded only when a command runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest.assemble import assemble_to_look
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.window import windows_named
from windrow.ingest.errors import SpecError
from windrow.ingest.runner.dead_publishing import Doubt, PublishedDeadLetters, publish_dead_letters


class PublishedWindow(msgspec.Struct, frozen=True):
    """How many dead letters of a window were published now."""

    window: str
    letters: PublishedDeadLetters


class PublishedDead(msgspec.Struct):
    """The document of `dead publish`: the windows of which anything was published now."""

    pipeline: str
    windows: list[PublishedWindow]


def publish_dead(output: Output, path: Path, text: str | None, doubt: Doubt) -> None:
    """Dead letters of the committed windows that are named, or of all, one window after
    the other; those before a failure are published.
    """
    spec = load_spec(path)
    pipeline = assemble_to_look(spec)
    topic = pipeline.dead_topic
    if topic is None:
        raise SpecError(
            f"Pipeline {spec.id} names no topic for dead letters", "spec", "Set dead_letters.topic."
        )
    wanted = None if text is None else set(windows_named(spec, text))
    receipts = sorted(
        (c.receipt for c in pipeline.sink.receipts()), key=lambda receipt: receipt.window
    )
    document, lines = PublishedDead(spec.id, []), list[Text]()
    output.show(document)
    try:
        for receipt in receipts:
            if wanted is not None and receipt.window not in wanted:
                continue
            letters = publish_dead_letters(
                pipeline.dead_letters, topic, receipt, pipeline.now, doubt
            )
            if letters is not None:
                document.windows.append(PublishedWindow(receipt.window.key, letters))
                lines.append(render.letters_line(receipt.window, letters))
    finally:
        output.show(document, *(lines or [Text("Nothing was left to publish.")]))
