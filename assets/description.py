"""A table's definition in Dagster: its description, and its metadata before any run.

Dagster shows descriptions as Markdown. Names from a spec are put in code spans, so that
their `*` and `_` aren't lost.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from typing import Any

import dagster as dg

from windrow.assets.columns import declared_schema, lineage
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.source import Pattern, Selection, selection_text
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model


def code(text: str) -> str:
    """Returns a Markdown code span. Its fence is longer than any run of backticks in the text."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def describe_selection(selection: Selection) -> str:
    """Returns the topics that are read, as Markdown."""
    if isinstance(selection, Pattern):
        return f"topics matching {code(selection.expression)}"
    return ", ".join(map(code, selection_text(selection).split(", ")))


def table_description(spec: PipelineSpec) -> str:
    """Returns the description of a table.

    It has the model's docstring, the topics, the grid, and the help command that explains
    events.

    Raises:
        SpecError: the model can't be loaded.
    """
    reference = spec.decode.schema_
    model = None if reference is None else load_model(ModelReference(reference, spec.folder))
    docstring = inspect.cleandoc((model and model.__doc__) or "")
    mode = (
        f"in micro-batches{'' if spec.stop is None else ' up to window.stop'}"
        if spec.window.is_batch
        else f"one window at a time ({code(spec.window.grid)})"
    )
    source_line = f"{describe_selection(spec.source.selection())}: {mode}, exactly once"
    drains = "A run without a partition commits what is waiting." if spec.window.is_batch else ""
    events = "`windrow help dagster` explains what an event of this table says."
    return "\n\n".join(filter(None, [docstring, source_line, drains, events]))


def code_version(spec: PipelineSpec, columns: Columns) -> str:
    """Returns a digest of everything that decides a message's rows.

    That is how it is decoded, its columns and its transforms. The source, tuning, limits,
    names of assets and references to secrets aren't part of it.

    Args:
        spec: the pipeline.
        columns: the columns of its schema.
    """
    column_facts = [(c.name, c.nullable, c.constraints) for c in columns.columns]
    specs = (spec, *spec.route_specs.values())
    parts = "".join(part.dump_for_digest("decode", "transform", "metadata") for part in specs)
    return hashlib.sha256(f"{parts}{columns.described()}{column_facts}".encode()).hexdigest()[:12]


def definition_metadata(spec: PipelineSpec, columns: Columns) -> dict[str, Any]:
    """Returns the metadata of a table's definition: its path, files and columns."""
    specs = (spec, *spec.route_specs.values())
    files: list[dg.LocalFileCodeReference | dg.UrlCodeReference] = [
        dg.LocalFileCodeReference(file_path=str(path), line_number=1, label=path.name)
        for path in dict.fromkeys((spec.spec_file, *(part.schema_file() for part in specs)))
        if path is not None
    ]
    return {
        "dagster/table_name": spec.id,
        "dagster/storage_kind": spec.sink.kind,
        "dagster/uri": spec.sink_path(),
        "path": dg.MetadataValue.path(spec.sink_path()),
        "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=files),
        "dagster/column_schema": declared_schema(columns, spec.metadata),
        "dagster/column_lineage": lineage(spec, [c.name for c in columns.columns]),
    }
