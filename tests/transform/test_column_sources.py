"""The columns on which each column of a transform's result depends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.transform.small import Only
from windrow.ingest.ports.transform import ColumnSource, Transform, column_sources
from windrow.ingest.transform.chain import Chain
from windrow.ingest.transform.lookup.nearest import Nearest
from windrow.ingest.transform.lookup.step import Lookup
from windrow.ingest.transform.sql.step import Sql

NOT_ASKED: Any = object()


@dataclass(frozen=True)
class Plugin:
    """A transform of a plugin that says on which columns its new column depends."""

    reads: Mapping[str, frozenset[str]]


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (Only("a", 1), {"a": {"a"}, "b": {"b"}}),
        (Plugin({"c": frozenset("ab")}), {"a": {"a"}, "b": {"b"}, "c": {"a", "b"}}),
        (Sql("SELECT a + b AS sum, b FROM rows"), {"sum": {"a", "b"}, "b": {"b"}}),
        (
            Lookup("s", (("a", "id"),), (("city", "b"), ("zip", "c")), NOT_ASKED),
            {"a": {"a"}, "b": {"a", ("s", "city")}, "c": {"a", ("s", "zip")}},
        ),
        (
            Nearest(
                "s",
                (("a", "vector"),),
                (("id", "b"), ("title", "t")),
                NOT_ASKED,
                into="near",
                top_k=1,
                metric="dot",
            ),
            {"a": {"a"}, "b": {"b"}, "near": {"a", ("s", "id"), ("s", "title")}},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_column_depends_on_what_its_transform_says_or_on_its_own_name(
    transform: Transform, expected: Mapping[str, set[ColumnSource]]
) -> None:
    """Lineage passes through each kind of step and plugin, without opening a lookup's source."""
    assert column_sources(transform, ["a", "b"]) == expected


def test_lineage_goes_through_steps_one_after_the_other() -> None:
    """A later step's columns are traced through earlier steps to the decoded columns."""
    steps: Any = (
        Plugin({"c": frozenset("ab")}),
        Lookup("s", (("c", "id"),), (("city", "city"),), NOT_ASKED),
        Sql("SELECT city || a AS place, 1 AS one FROM rows"),
    )
    assert column_sources(Chain(steps), ["a", "b"]) == {
        "place": {"a", "b", ("s", "city")},
        "one": set(),
    }
