"""Names of records, as Avro's resolution compares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def is_one_of(names: Iterable[str], records: Sequence[str]) -> bool:
    """Whether a record with these full names is one of some.

    One of them without a namespace is meant in any.
    """
    return any(record in {name, name.rpartition(".")[2]} for name in names for record in records)
