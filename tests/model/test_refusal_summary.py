"""Refused messages are counted by the kind of their fault, in texts without values.

The number of kinds is bounded.
"""

from __future__ import annotations

from collections import Counter

import pytest

from windrow.ingest.model.refusal_summary import (
    OTHERS,
    Kinds,
    Refusals,
    RefusedAt,
    in_words,
    most_frequent,
)


@pytest.mark.parametrize(
    ("reason", "detail", "words"),
    [
        (
            "wrong_type",
            "Expected int, got float - at $.items[3].amount",
            "$.items[].amount expected int, got float",
        ),
        ("check", "Failed greater_than(0) - at $.amount", "$.amount failed greater_than(0)"),
        (
            "missing",
            "Object misses a required field - at $.a[12][3]",
            "$.a[][]: Object misses a required field",
        ),
        (
            "invalid_utf8",
            "Expected UTF-8, got invalid start byte (byte 17)",
            "expected UTF-8, got invalid start byte",
        ),
        (
            "not_json",
            "JSON is malformed: Expecting value (character 0)",
            "JSON is malformed: Expecting value",
        ),
        ("odd", "of (byte 3) inside - at $.a", "$.a: of (byte 3) inside"),
        ("plain", "a - at b - at $.c", "$.c: a - at b"),
        ("too_large", None, "too_large"),
        ("Expected [3]", None, "expected [3]"),
        (
            "key:wrong_type",
            "Expected str, got int - at the key's $.ids[3]",
            "the key's $.ids[] expected str, got int",
        ),
        (
            "key:not_json",
            "JSON is malformed: Expecting value (character 0) - at the key",
            "the key: JSON is malformed: Expecting value",
        ),
        (
            "header:invalid_utf8",
            "Expected UTF-8 - at the header x-trace",
            "the header x-trace expected UTF-8",
        ),
    ],
)
def test_a_detail_in_words(reason: str, detail: str | None, words: str) -> None:
    """A kind has the path without indices first, and no position in the text.

    Without a detail it is the reason.
    """
    assert in_words(reason, detail) == words


@pytest.mark.parametrize(("length", "shown"), [(199, 199), (200, 200), (201, 200), (900, 200)])
def test_words_have_an_end(length: int, shown: int) -> None:
    """A kind has at most 200 characters and ends with three dots if it was longer."""
    path = "$." + "a" * (length - len("$. expected int"))
    words = in_words("wrong_type", f"Expected int - at {path}")
    assert len(words) == shown
    assert words.endswith("..." if length > shown else " expected int")
    assert words.removesuffix("...") == f"{path} expected int"[: len(words.removesuffix("..."))]


def add(refusals: Refusals, reasons: list[str], details: list[str | None] | list[str]) -> None:
    """Adds dead letters of one stage, at offset 0."""
    refusals.add(["value"] * len(reasons), reasons, details, [0] * len(reasons))


def kinds_of(refusals: Refusals) -> Kinds:
    """Returns the kinds of the only stage."""
    (refused,) = refusals.by_stage()
    assert refused.count == sum(n for _, n in refused.kinds)
    return refused.kinds


def test_stages_are_told_apart() -> None:
    """Each stage has its own count, kinds and first offsets.

    The first three offsets are kept, in the order of arrival.
    """
    refusals = Refusals()
    assert refusals.by_stage() == ()
    refusals.add(["value", "key", "value"], ["a", "a", "b"], [None] * 3, [7, 8, 9])
    refusals.add(["value"] * 3, ["b"] * 3, [None] * 3, [11, 12, 13])
    assert refusals.by_stage() == (
        RefusedAt("key", 1, (("a", 1),), (8,)),
        RefusedAt("value", 5, (("b", 4), ("a", 1)), (7, 9, 11)),
    )


def test_refusals_are_counted_by_kind() -> None:
    """Equal refusals are counted together, the most frequent kind first, then by name."""
    refusals = Refusals()
    add(refusals, ["b", "a", "c"], ["b", "a", "c"])
    add(refusals, ["c", "b"], [None, None])
    add(refusals, [], [])
    assert [n for _, n in kinds_of(refusals)] == [2, 2, 1]
    assert [kind[-1] for kind, _ in kinds_of(refusals)] == ["b", "c", "a"]


def test_kinds_are_told_apart_by_their_details() -> None:
    """Refusals with the same reason and different details are different kinds."""
    refusals = Refusals()
    add(
        refusals,
        ["wrong_type"] * 3,
        ["Expected int, got str - at $.a"] * 2 + ["Expected int, got str - at $.b"],
    )
    assert kinds_of(refusals) == (
        ("$.a expected int, got str", 2),
        ("$.b expected int, got str", 1),
    )


@pytest.mark.parametrize(("details", "offsets"), [(["a"], [1, 2]), (["a", "b"], [1])])
def test_each_refusal_has_all_parts(details: list[str], offsets: list[int]) -> None:
    """A refusal without one of its parts raises ValueError."""
    with pytest.raises(ValueError, match="argument"):
        Refusals().add(["value"] * 2, ["a", "b"], details, offsets)


def test_at_most_ten_kinds_are_told_apart() -> None:
    """At most ten kinds are listed, and all other kinds together come last."""
    refusals = Refusals()
    add(refusals, [f"{n:02}" for n in range(12)] + ["00"], [None] * 13)
    kinds = kinds_of(refusals)
    assert len(kinds) == 11
    assert kinds[0][1] == 2
    assert kinds[-1] == (OTHERS, 2)


def test_at_most_two_hundred_kinds_are_kept() -> None:
    """At most two hundred kinds are kept, so that memory is bounded.

    Known kinds are still counted. New kinds beyond the limit count as others.
    """
    refusals = Refusals()
    add(refusals, [f"{n:03}" for n in range(201)], [None] * 201)
    add(refusals, ["000", "199", "200", "999"], [None] * 4)
    count_by_kind = dict(kinds_of(refusals))
    assert count_by_kind[OTHERS] == 3 + 190
    assert sorted(count_by_kind.values())[-3:] == [2, 2, 193]


def test_bounded_keeps_the_most_frequent() -> None:
    """`most_frequent` keeps the most frequent kinds and adds the rest to the others.

    It lists no others if there are none.
    """
    counts = Counter({"a": 3, "b": 5, "c": 1})
    assert most_frequent(counts, 3) == (("b", 5), ("a", 3), ("c", 1))
    assert most_frequent(counts, 2) == (("b", 5), ("a", 3), (OTHERS, 1))
    assert most_frequent(counts + Counter({OTHERS: 4}), 1) == (("b", 5), (OTHERS, 8))
    assert most_frequent(Counter(), 1) == ()
    assert most_frequent(Counter({"z": 1, "y": 1, "x": 1}), 2) == (("x", 1), ("y", 1), (OTHERS, 1))
