"""The `lookup` step by vectors: the nearest rows of a table's pinned version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.lookups.table.kind import TableSection
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.ports.transform import Transform
from windrow.ingest.testing.contracts.transform import Before, TransformContract, apply
from windrow.ingest.testing.contracts.values import dead
from windrow.ingest.transform.chain import columns_after
from windrow.ingest.transform.kind import StepContext
from windrow.ingest.transform.lookup import nearest as search
from windrow.ingest.transform.lookup.kind import LookupStepSection
from windrow.ingest.transform.lookup.nearest import Nearest

Metric = Literal["cosine", "l2", "dot"]
METRICS: tuple[Metric, ...] = ("cosine", "l2", "dot")

DOCS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5], pa.int64()),
        "vector": pa.array(
            [[1, 0], [0, 2], None, [3, 3], [-1, float("nan")]], pa.list_(pa.float32())
        ),
    }
)
"""Documents. 3 and 5 have no vector, so nothing is near them."""


SINGLE, DOUBLE = pa.float32(), pa.float64()


def rows_of(vectors: Sequence[Any], kind: pa.DataType = SINGLE, first: str = "n") -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(range(len(vectors)), pa.int64()), pa.array(vectors, pa.list_(kind))],
        [first, "embedding"],
    )


def docs_of(vectors: Sequence[Any], kind: pa.DataType = SINGLE) -> pa.Table:
    """Returns a table with these vectors and ids from 0."""
    return pa.table(rows_of(vectors, kind, "id")).rename_columns(["id", "vector"])


def similar(folder: Path, docs: pa.Table = DOCS, **more: Any) -> Nearest:
    """Returns a search in Parquet files."""
    folder.mkdir(exist_ok=True)
    pq.write_table(docs, folder / "docs.parquet")
    settings = {"into": "near", "top_k": 2, "metric": "cosine"} | more
    return Nearest(
        "similar",
        (("embedding", "vector"),),
        (("id", "doc"),),
        TableSection(table=str(folder)).source(folder),
        **settings,
    )


def matches_of(verdict: Decoded) -> list[list[int] | None]:
    """Returns the documents that each row got."""
    return [
        None if near is None else [match["doc"] for match in near]
        for near in verdict.rows["near"].to_pylist()
    ]


class TestNearest(TransformContract):
    """A new list of structs in each row. A row without an answer is a dead letter, or gets null."""

    @pytest.fixture
    def input_rows(self) -> Before:
        rows = rows_of([[1, 1], None, [0, 0], [1], [5, 1]])
        return Before(columns_of(rows), rows, (0, 0, 1, 2, 3))

    @pytest.fixture(params=[("null", "cosine"), ("dead", "l2")])
    def transform(self, request: pytest.FixtureRequest, tmp_path: Path) -> Transform:
        on_miss, metric = request.param
        return similar(tmp_path, on_miss=on_miss, metric=metric)


NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0, 1e-3, 1e6, 0.1])


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[list[float]], list[list[float]]]:
    size = draw(st.integers(1, 5))
    vectors = st.lists(NUMBERS, min_size=size, max_size=size)
    return draw(st.lists(vectors, max_size=12)), draw(st.lists(vectors, min_size=1, max_size=6))


def _naive(metric: Metric, query: Sequence[float], vector: Sequence[float]) -> float:
    """Returns the score, added up exactly."""
    product = math.fsum(a * b for a, b in zip(query, vector, strict=True))
    if metric == "dot":
        return product
    if metric == "l2":
        return math.dist(query, vector)
    return product / (math.hypot(*query) * math.hypot(*vector))


@pytest.mark.parametrize("metric", METRICS)
@given(case=_cases(), wide=st.booleans(), top_k=st.integers(1, 5))
def test_matches_are_those_of_a_plain_loop(
    metric: Metric,
    case: tuple[list[list[float]], list[list[float]]],
    wide: bool,
    top_k: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The matches are those of a simple loop, with their scores.

    The nearest come first, and there are at most `top_k`.
    """
    kind = DOUBLE if wide else SINGLE
    table, queries = (pa.array(vectors, pa.list_(kind)).to_pylist() for vectors in case)
    lookup = similar(tmp_path_factory.mktemp("t"), docs_of(table, kind), metric=metric, top_k=top_k)
    comparable_docs = [n for n, vector in enumerate(table) if metric != "cosine" or any(vector)]
    for query, near in zip(
        queries,
        similar_of(lookup, [q if metric != "cosine" or any(q) else None for q in queries], kind),
        strict=True,
    ):
        if not comparable_docs or (metric == "cosine" and not any(query)):
            assert near is None
            continue
        assert near is not None
        scores = {n: _naive(metric, query, table[n]) for n in comparable_docs}
        order = sorted(scores.values(), reverse=metric != "l2")[:top_k]
        size = 1e-9 * max(1.0, *(abs(score) for score in order), math.hypot(*query))
        assert [match["score"] for match in near] == pytest.approx(order, rel=1e-9, abs=size)
        for match in near:
            assert match["score"] == pytest.approx(scores[match["doc"]], rel=1e-9, abs=size)
        assert near == sorted(
            near, key=lambda m: (m["score"] * (1 if metric == "l2" else -1), m["doc"])
        )


def similar_of(
    lookup: Nearest, queries: Sequence[Any], kind: pa.DataType
) -> list[list[dict[str, Any]] | None]:
    matches: list[list[dict[str, Any]] | None] = (
        apply(lookup, decoded(rows_of(queries, kind))).rows["near"].to_pylist()
    )
    return matches


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_the_same_bits_in_any_batch(metric: Metric, tmp_path: Path) -> None:
    """Scores are bit-identical in any batch and for any files.

    So the checksum of answers is stable.
    """
    chance = np.random.default_rng(7)
    vectors = chance.standard_normal((3000, 96)).astype(np.float32)
    vectors[1000:1500] = vectors[:500] * np.float32(1 + 2**-20)  # nearly the same score
    vectors[2000:2040] = vectors[3]  # the same score
    docs = docs_of(list(vectors))
    queries = [*(vectors[n] + np.float32(1e-3) for n in range(40)), *vectors[:10]]
    batch = rows_of(queries)
    full_output = apply(similar(tmp_path / "a", docs, metric=metric, top_k=20), decoded(batch))
    split_lookup = similar(tmp_path / "b", docs.slice(1700), metric=metric, top_k=20)
    pq.write_table(docs.slice(0, 1700), tmp_path / "b" / "z.parquet")
    parts = [apply(split_lookup, decoded(batch.slice(start, 7))) for start in range(0, 50, 7)]
    rows = pa.Table.from_batches([part.rows for part in parts]).combine_chunks()
    assert rows.to_batches()[0].equals(full_output.rows)
    answers = sum(int(part.lookups[0].answers, 16) for part in parts) % 2**64
    assert f"{answers:016x}" == full_output.lookups[0].answers
    ids = matches_of(full_output)[3]
    assert ids is not None
    equal = [n for n in ids if n != 1003]
    assert equal == [3, *range(2000, 2000 + len(equal) - 1)]  # equal scores are in the order of ids


@pytest.mark.parametrize(("metric", "zero"), [("cosine", "dead"), ("l2", [1, 2]), ("dot", [1, 2])])
def test_what_is_no_vector(metric: Metric, zero: str | list[int], tmp_path: Path) -> None:
    """A null vector is a miss, and a vector that can't be compared makes a dead letter.

    This doesn't depend on `on_miss`. The dead letter has no numbers of the vector.
    """
    unfit = [[1.0], [1.0, 2.0, 3.0], [], [1.0, None], [math.nan, 1.0], [1.0, -math.inf], [1e30, 0]]
    rows = rows_of([[2, 1], None, [0, 0], *unfit, [1e200, 1]], DOUBLE)
    verdict = apply(similar(tmp_path, metric=metric), decoded(rows))
    reasons = [(n, "rules", "lookup:similar:vector") for n in range(3, 11)]
    if zero == "dead":
        assert matches_of(verdict) == [[4, 1], None]
        reasons = [(2, "rules", "lookup:similar:vector"), *reasons]
    else:
        assert matches_of(verdict)[1:] == [None, zero]
    assert dead(verdict) == reasons
    detail = verdict.dead_detail[0].as_py()
    assert detail.startswith("Expected 2 finite numbers")
    (looked_up,) = verdict.lookups
    query_count = len(verdict.rows) - 1
    assert (looked_up.keys, looked_up.hits, looked_up.misses) == (query_count, query_count, 1)


@pytest.mark.parametrize("vectors", [[], [None, None], [[math.nan, 1.0]]])
@pytest.mark.parametrize("on_miss", ["null", "dead", "fail"])
def test_a_table_without_vectors(
    vectors: list[Any], on_miss: Literal["null", "dead", "fail"], tmp_path: Path
) -> None:
    """Each row is a miss if the table has no vectors."""
    lookup, rows = (
        similar(tmp_path, docs_of(vectors), on_miss=on_miss),
        decoded(rows_of([[1, 2], [3]])),
    )
    if on_miss == "fail":
        with pytest.raises(RefusedError, match="has no row for the vector of 2 of 2 rows") as error:
            apply(lookup, rows)
        assert error.value.offset == 0
        return
    verdict = apply(lookup, rows)
    if on_miss == "dead":
        assert [reason for _, _, reason in dead(verdict)] == ["lookup:similar:no_match"] * 2
    else:
        assert matches_of(verdict) == [None, None]


def test_vectors_of_two_lengths_refuse_the_window(tmp_path: Path) -> None:
    """Vectors of two lengths refuse the window, because they come from two models.

    A search in only a part of the table would look like a search in all of it.
    """
    docs = pa.table({"id": [1, 2], "vector": pa.array([[1.0, 2.0], [1.0]], pa.list_(pa.float64()))})
    with pytest.raises(RefusedError, match="vectors of 1 and of 2 numbers") as refused:
        apply(similar(tmp_path, docs), decoded(rows_of([[1, 2]])))
    assert "--fresh-lookups" in refused.value.advice


def test_what_a_message_left_unchanged_stays_so(tmp_path: Path) -> None:
    """If the vector is unchanged, its matches are unchanged too, and the row is no miss."""
    unavailable = pa.array([[], ["embedding"]], pa.list_(pa.string()))
    rows = decoded(rows_of([[1, 0], None]), unavailable=unavailable)
    verdict = apply(similar(tmp_path, on_miss="dead"), rows)
    assert verdict.unavailable is not None
    assert verdict.unavailable.to_pylist() == [[], ["embedding", "near"]]
    assert matches_of(verdict) == [[1, 4], None]
    assert verdict.lookups[0].misses == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": (("n", "vector"),)}, "n is int64, and vector is list<.*>: can't be compared"),
        ({"key": (("embedding", "id"),)}, "and id is int64: can't be compared"),
        ({"key": (("other", "vector"),)}, "the rows have no column other"),
        ({"key": (("embedding", "other"),)}, "similar has no column other"),
        ({"take": (("id", "Score"),)}, "'Score' and 'score' differ by case only"),
        ({"into": "n"}, "'n' comes twice"),
    ],
)
def test_what_can_never_fit_is_refused_before_anything_is_read(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """A search that can't fit raises SpecError before anything is read.

    A column is missing or has no vectors, or a name is repeated.
    """
    lookup = similar(tmp_path)
    with pytest.raises(SpecError, match=message):
        columns_after(replace(lookup, **change), columns_of(rows_of([[1, 2]])))


def test_matches_that_take_too_much_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matches that need too much memory raise SpecError with the way out, before the search."""
    monkeypatch.setattr(search, "MOST_BYTES", 200)
    with pytest.raises(SpecError, match="too large for a batch of 2 rows") as refused:
        apply(similar(tmp_path), decoded(rows_of([[1, 2], [2, 1]])))
    assert "batch_messages" in refused.value.advice


def test_a_version_is_searched_again(tmp_path: Path) -> None:
    """A pinned version gives the same matches after the table has grown.

    Its vectors have a fixed size, as other programs write them.
    """
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 0.0, 0.0, 1.0]), 2)
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "vector": vectors}))
    section = LookupStepSection.model_validate(
        {
            "lookup": "near",
            "nearest": {"embedding": "vector"},
            "take": {"id": "doc"},
            "from": {"table": str(tmp_path / "t")},
        }
    )
    step = section.transform(StepContext("transform.steps.0", tmp_path))
    assert isinstance(step, Nearest)
    pinned = step.pinned({"near": step.source.version()})
    rows = decoded(rows_of([[1, 3]]))
    first = apply(pinned, rows)
    assert matches_of(first) == [[2]]
    write_deltalake(tmp_path / "t", pa.table({"id": [3], "vector": [[1.0, 3.0]]}), mode="append")
    assert apply(pinned, rows).rows.equals(first.rows)
    assert matches_of(apply(step, rows)) == [[3]]


BY_VECTOR = {"lookup": "a", "nearest": {"e": "v"}, "take": {"id": "id"}, "from": {"table": "t"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nearest": None}, "must be there, or nearest in its place"),
        ({"key": {"id": "id"}}, "must be there, or nearest in its place"),
        ({"nearest": {"e": "v", "f": "w"}}, "at most 1"),
        ({"first_by": "id"}, "doesn't go with nearest"),
        ({"top_k": 0}, "greater than or equal to 1"),
        ({"top_k": 101}, "less than or equal to 100"),
        ({"metric": "hamming"}, "'cosine', 'l2' or 'dot'"),
        ({"from": {"sql": "sqlite:///x", "relation": "t"}}, "must be a table"),
        ({"nearest": None, "key": {"id": "id"}, "top_k": 3}, "doesn't go with key"),
    ],
)
def test_options_that_mean_nothing_are_refused(change: dict[str, Any], message: str) -> None:
    """An option without effect is refused with its place when the spec is read."""
    with pytest.raises(ValidationError, match=message):
        LookupStepSection.model_validate(BY_VECTOR | change)
