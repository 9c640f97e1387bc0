"""What was wrong with messages is counted in words without values, by kinds that are bounded."""

from __future__ import annotations

from collections import Counter

import pytest

from ingest.model.refusals import OTHERS, Refusals, bounded, in_words


@pytest.mark.parametrize(
    ("reason", "detail", "words"),
    [
        ("wrong_type", "Expected int, got float - at $.items[3].amount", "$.items[].amount expected int, got float"),
        ("check", "Failed greater_than(0) - at $.amount", "$.amount failed greater_than(0)"),
        ("missing", "Object misses a required field - at $.a[12][3]", "$.a[][]: Object misses a required field"),
        ("invalid_utf8", "Expected UTF-8, got invalid start byte (byte 17)", "expected UTF-8, got invalid start byte"),
        ("not_json", "JSON is malformed: Expecting value (character 0)", "JSON is malformed: Expecting value"),
        ("odd", "of (byte 3) inside - at $.a", "$.a: of (byte 3) inside"),
        ("plain", "a - at b - at $.c", "$.c: a - at b"),
        ("too_large", None, "too_large"),
        ("Expected [3]", None, "expected [3]"),
        ("key:wrong_type", "Expected str, got int - at the key's $.ids[3]", "the key's $.ids[] expected str, got int"),
        ("key:not_json", "JSON is malformed: Expecting value (character 0) - at the key", "the key: JSON is malformed: Expecting value"),
        ("header:invalid_utf8", "Expected UTF-8 - at the header x-trace", "the header x-trace expected UTF-8"),
    ],
)
def test_a_detail_in_words(reason: str, detail: str | None, words: str) -> None:
    """The place in the document first, without indices; the place in the text not at all; without a detail the reason."""
    assert in_words(reason, detail) == words


@pytest.mark.parametrize(("length", "shown"), [(199, 199), (200, 200), (201, 200), (900, 200)])
def test_words_have_an_end(length: int, shown: int) -> None:
    """At most 200 characters, the last three of which say that there was more."""
    path = "$." + "a" * (length - len("$. expected int"))
    found = in_words("wrong_type", f"Expected int - at {path}")
    assert len(found) == shown
    assert found.endswith("..." if length > shown else " expected int")
    assert found.removesuffix("...") == f"{path} expected int"[: len(found.removesuffix("..."))]


def test_refusals_are_counted_by_kind() -> None:
    """Alike ones together, the most frequent first, equal ones in the order of their names."""
    refusals = Refusals()
    refusals.add(["b", "a", "c"], ["b", "a", "c"])
    refusals.add(["c", "b"], [None, None])
    refusals.add([], [])
    assert [n for _, n in refusals.kinds()] == [2, 2, 1]
    assert [what[-1] for what, _ in refusals.kinds()] == ["b", "c", "a"]


def test_kinds_are_told_apart_by_their_details() -> None:
    """Two messages that were refused for one reason may want two things mended."""
    refusals = Refusals()
    refusals.add(["wrong_type"] * 3, ["Expected int, got str - at $.a"] * 2 + ["Expected int, got str - at $.b"])
    assert refusals.kinds() == (("$.a expected int, got str", 2), ("$.b expected int, got str", 1))


def test_reasons_and_details_come_in_pairs() -> None:
    """One without the other is a mistake."""
    with pytest.raises(ValueError, match="argument"):
        Refusals().add(["a", "b"], ["a"])


def test_at_most_ten_kinds_are_told_apart() -> None:
    """All others together come last, whatever their number."""
    refusals = Refusals()
    refusals.add([f"{n:02}" for n in range(12)] + ["00"], [None] * 13)
    kinds = refusals.kinds()
    assert len(kinds) == 11
    assert kinds[0][1] == 2
    assert kinds[-1] == (OTHERS, 2)


def test_at_most_two_hundred_kinds_are_kept() -> None:
    """A kind that is known is counted on; what is new beyond them counts as others, so memory is bounded."""
    refusals = Refusals()
    refusals.add([f"{n:03}" for n in range(201)], [None] * 201)
    refusals.add(["000", "199", "200", "999"], [None] * 4)
    found = dict(refusals.kinds())
    assert found[OTHERS] == 3 + 190
    assert sorted(found.values())[-3:] == [2, 2, 193]


def test_bounded_keeps_the_most_frequent() -> None:
    """And names nothing where there is nothing else; what is called others already is added to the others."""
    counts = Counter({"a": 3, "b": 5, "c": 1})
    assert bounded(counts, 3) == (("b", 5), ("a", 3), ("c", 1))
    assert bounded(counts, 2) == (("b", 5), ("a", 3), (OTHERS, 1))
    assert bounded(counts + Counter({OTHERS: 4}), 1) == (("b", 5), (OTHERS, 8))
    assert bounded(Counter(), 1) == ()
    assert bounded(Counter({"z": 1, "y": 1, "x": 1}), 2) == (("x", 1), ("y", 1), (OTHERS, 1))
