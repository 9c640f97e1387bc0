"""JSON both ways for the nouns of `ingest.model`."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def to_json(value: msgspec.Struct) -> str:
    """Canonical JSON: the fields in their declared order, no spaces."""
    return msgspec.json.encode(value).decode()


def from_json(text: str | bytes, kind: type[T]) -> T:
    """The value back.

    Raises:
        msgspec.ValidationError: if the text is not of this kind or breaks one of its invariants.
    """
    return msgspec.json.decode(text, type=kind)
