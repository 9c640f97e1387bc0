"""What is offered, as the model of a file that says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windrow.ingest.infer.offer import Offer, class_lines, schema_text, usable_only
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.load import ModelReference, load_model


def columns_of(offers: Sequence[Offer], folder: Path) -> Columns:
    """The columns of the schema that is written for some fields."""
    lines = class_lines(usable_only(offers, lambda _: ""), frozenset())
    (folder / "schema.py").write_text(schema_text("Row", "A test's", lines), encoding="utf-8")
    return Columns.of(load_model(ModelReference("schema.py:Row", folder)))


def described(offers: Sequence[Offer], folder: Path) -> dict[str, str]:
    """Their names and types, as receipts have them."""
    return dict(columns_of(offers, folder).described())


def left_out(offers: Sequence[Offer]) -> dict[str, str]:
    """The fields that are no columns, and why."""
    return {
        offer.name: offer.guess.note
        for offer in usable_only(offers, lambda _: "")
        if not offer.usable
    }
