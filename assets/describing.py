"""Descriptions, which Dagster shows as Markdown: a user's own words stand in code
spans, or their `*` and `_` would be lost.

Pure.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from windrow.assets.metadata import MEANINGS
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.source import Pattern, Selection, selection_text
from windrow.ingest.schema.load import ModelReference, load_model


def code(text: str) -> str:
    """The text as it is, in a code span whose fence is longer than any row of backticks in it."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def selected(selection: Selection) -> str:
    """What is read."""
    if isinstance(selection, Pattern):
        return f"topics matching {code(selection.expression)}"
    return ", ".join(map(code, selection_text(selection).split(", ")))


def table_description(spec: PipelineSpec) -> str:
    """What the model says of itself, what the table holds, and what the metadata of its
    events mean.

    Lists show the first line.

    Raises:
        SpecError: the model can't be loaded.
    """
    model = (
        None
        if spec.decode.schema_ is None
        else load_model(ModelReference(spec.decode.schema_, spec.folder))
    )
    said = inspect.cleandoc((model and model.__doc__) or "")
    said += "\n\n" if said else ""
    how = (
        "in micro-batches"
        if spec.window.is_batch
        else f"one window at a time ({code(spec.window.grid)})"
    )
    what = f"{said}{selected(spec.source.selection())}: {how}, exactly once"
    return f"{what}\n\nWhat an event of this table says:\n\n{_explained(MEANINGS.items())}"


def _explained(meanings: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {code(name)} | {meaning} |" for name, meaning in meanings]
    return "\n".join(["| entry | meaning |", "| --- | --- |", *lines])
