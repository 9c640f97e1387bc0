"""Inferred candidates, and the columns of the schema's file that is written for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windrow.ingest.infer.candidates import Candidate, refuse_unusable
from windrow.ingest.infer.pipeline_files import class_lines, schema_text
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model


def columns_of(candidates: Sequence[Candidate], folder: Path) -> Columns:
    """Returns the columns of the schema's file that is written for the candidates."""
    lines = class_lines(refuse_unusable(candidates, lambda _: ""), frozenset())
    (folder / "schema.py").write_text(schema_text("Row", "A test's", lines), encoding="utf-8")
    return Columns.of(load_model(ModelReference("schema.py:Row", folder)))


def describe_columns(candidates: Sequence[Candidate], folder: Path) -> dict[str, str]:
    """Returns the columns' names and types, as receipts have them."""
    return dict(columns_of(candidates, folder).described())


def reason_by_field(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Returns the candidates that become no column, with the reasons."""
    return {
        candidate.name: candidate.guess.note
        for candidate in refuse_unusable(candidates, lambda _: "")
        if not candidate.usable
    }
