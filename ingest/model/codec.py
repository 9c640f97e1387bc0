"""Conversion of the values in `ingest.model` to JSON and back."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def to_json(value: msgspec.Struct) -> str:
    """Returns the canonical JSON: the fields in their declared order, without spaces."""
    return msgspec.json.encode(value).decode()


def from_json(text: str | bytes, kind: type[T]) -> T:
    """Reads a value from its JSON.

    Raises:
        msgspec.ValidationError: the text isn't JSON of this kind, or breaks an invariant of
            it.
    """
    return msgspec.json.decode(text, type=kind)
