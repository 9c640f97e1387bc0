"""What was wrong with messages is counted in words without values, by kinds that are bounded."""

from __future__ import annotations

from collections import Counter

import pytest

from windrow.ingest.model.refusal_summary import (
    OTHERS,
    Kinds,
    Refusals,
    RefusedAt,
    bounded,
    in_words,
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
    """The place in the document first, without indices; the place in the text not at
    all; without a detail the reason.
    """
    assert in_words(reason, detail) == words


@pytest.mark.parametrize(("length", "shown"), [(199, 199), (200, 200), (201, 200), (900, 200)])
def test_words_have_an_end(length: int, shown: int) -> None:
    """At most 200 characters, the last three of which say that there was more."""
    path = "$." + "a" * (length - len("$. expected int"))
    words = in_words("wrong_type", f"Expected int - at {path}")
    assert len(words) == shown
    assert words.endswith("..." if length > shown else " expected int")
    assert words.removesuffix("...") == f"{path} expected int"[: len(words.removesuffix("..."))]


def add(refusals: Refusals, reasons: list[str], details: list[str | None] | list[str]) -> None:
    """Dead letters of one stage, at offset 0."""
    refusals.add(["value"] * len(reasons), reasons, details, [0] * len(reasons))


def kinds_of(refusals: Refusals) -> Kinds:
    """What was wrong with those of the one stage."""
    (refused,) = refusals.by_stage()
    assert refused.count == sum(n for _, n in refused.kinds)
    return refused.kinds


def test_stages_are_told_apart() -> None:
    """Each has its own count, kinds and first offsets, of which three are kept, in the
    order in which they came.
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
    """Alike ones together, the most frequent first, equal ones in the order of their names."""
    refusals = Refusals()
    add(refusals, ["b", "a", "c"], ["b", "a", "c"])
    add(refusals, ["c", "b"], [None, None])
    add(refusals, [], [])
    assert [n for _, n in kinds_of(refusals)] == [2, 2, 1]
    assert [kind[-1] for kind, _ in kinds_of(refusals)] == ["b", "c", "a"]


def test_kinds_are_told_apart_by_their_details() -> None:
    """Two messages that were refused for one reason may want two things fixed."""
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
    """One part without the others is a mistake."""
    with pytest.raises(ValueError, match="argument"):
        Refusals().add(["value"] * 2, ["a", "b"], details, offsets)


def test_at_most_ten_kinds_are_told_apart() -> None:
    """All others together come last, whatever their number."""
    refusals = Refusals()
    add(refusals, [f"{n:02}" for n in range(12)] + ["00"], [None] * 13)
    kinds = kinds_of(refusals)
    assert len(kinds) == 11
    assert kinds[0][1] == 2
    assert kinds[-1] == (OTHERS, 2)


def test_at_most_two_hundred_kinds_are_kept() -> None:
    """A kind that is known is counted on; what is new beyond them counts as others, so
    memory is bounded.
    """
    refusals = Refusals()
    add(refusals, [f"{n:03}" for n in range(201)], [None] * 201)
    add(refusals, ["000", "199", "200", "999"], [None] * 4)
    count_by_kind = dict(kinds_of(refusals))
    assert count_by_kind[OTHERS] == 3 + 190
    assert sorted(count_by_kind.values())[-3:] == [2, 2, 193]


def test_bounded_keeps_the_most_frequent() -> None:
    """And names nothing where there is nothing else; what is called others already is
    added to the others.
    """
    counts = Counter({"a": 3, "b": 5, "c": 1})
    assert bounded(counts, 3) == (("b", 5), ("a", 3), ("c", 1))
    assert bounded(counts, 2) == (("b", 5), ("a", 3), (OTHERS, 1))
    assert bounded(counts + Counter({OTHERS: 4}), 1) == (("b", 5), (OTHERS, 8))
    assert bounded(Counter(), 1) == ()
    assert bounded(Counter({"z": 1, "y": 1, "x": 1}), 2) == (("x", 1), ("y", 1), (OTHERS, 1))
