"""Labels: the names under which boundaries are frozen."""

from __future__ import annotations

from datetime import UTC, datetime

Label = datetime | int
"""An instant of the pipeline's grid, or the sequence number of a micro-batch."""


def instant(moment: datetime) -> str:
    """The only text form of an instant: `2026-01-02T03:00:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def label_text(label: Label) -> str:
    """The only text form of a label: an instant, or `batch-000000007`.

    Texts of sequence numbers sort as the numbers do.
    """
    return instant(label) if isinstance(label, datetime) else f"batch-{label:09d}"


def number_of(label: Label) -> int:
    """Returns a label that is a sequence number.

    Raises:
        TypeError: it is an instant.
    """
    if isinstance(label, datetime):
        msg = f"{instant(label)} is no sequence number"
        raise TypeError(msg)
    return label


def is_later(one: Label, other: Label) -> bool:
    """Returns whether one label comes after another label of the same pipeline.

    An instant and a sequence number are in no order: neither comes after the other.
    """
    if isinstance(one, datetime) or isinstance(other, datetime):
        return isinstance(one, datetime) and isinstance(other, datetime) and one > other
    return one > other


def require_label(name: str, label: Label) -> None:
    """Checks the invariants of a label; `name` is the field that holds it."""
    if isinstance(label, int):
        if label < 0:
            msg = f"{name} must not be negative: {label}"
            raise ValueError(msg)
    elif label.utcoffset() != UTC.utcoffset(None):
        msg = f"{name} must be an aware datetime in UTC, not {label!r}"
        raise ValueError(msg)
