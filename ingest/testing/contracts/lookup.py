"""What every `ports.lookup.LookupSource` must keep.

The suite of a source supplies the fixture `source`, which has the rows of `PEOPLE` and no others.
If the source repeats, `changed` puts the rows of `CHANGED` in their place.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from windrow.ingest.errors import RefusedError
from windrow.ingest.ports.lookup import Answers, LookupSource
from windrow.ingest.testing.contracts.windows import together

PEOPLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": ["Ann", "Bob", None],
        "city": ["Kyiv", None, None],
    }
)
"""The rows that the source of a suite has; its whole numbers may be of any width."""

CHANGED = PEOPLE.set_column(1, "name", pa.array(["Zoe", "Bob", "Cid"]))
"""The rows that a source has after `changed`, with the types of before."""

WANTED = ("id", "name")


class LookupContract:
    """The promises."""

    def changed(self, source: LookupSource) -> None:
        """Changes the table or service of a source that repeats: it has `CHANGED` afterwards."""
        raise NotImplementedError("a source that repeats needs `changed` in its suite")

    def columns(self, source: LookupSource) -> pa.Schema:
        """The columns that are asked for, with the source's types."""
        schema = source.schema()
        return pa.schema([schema.field(name) for name in WANTED])

    def asked(self, source: LookupSource, version: str, *keys: Sequence[int]) -> list[Answers]:
        """What one function that the source opens answers, one question after the other."""
        columns = self.columns(source)
        ask = source.open(version, columns)
        all_answers = [ask(pa.table({"id": pa.array(ids, pa.int64())})) for ids in keys]
        for answers in all_answers:
            rows = answers.rows.select(columns.names)
            assert rows.schema.types == columns.types
            assert answers.requests >= 0
        return all_answers

    def test_it_says_what_it_has(self, source: LookupSource) -> None:
        """A name for people, and columns of types that a table takes."""
        assert source.identity.isprintable()
        assert source.identity
        types = {name: source.schema().field(name).type for name in PEOPLE.column_names}
        assert pa.types.is_integer(types.pop("id"))
        assert types == {"name": pa.string(), "city": pa.string()}

    def test_each_key_has_its_row(self, source: LookupSource) -> None:
        """A key without a row is left out; null values come back as null."""
        (answers,) = self.asked(source, source.version(), [1, 3, 7])
        assert _rows(answers) == [(1, "Ann"), (3, None)]

    def test_one_question_after_the_other(self, source: LookupSource) -> None:
        """Each is answered alone, whatever was asked before; no key has a row it lacks."""
        single_answers = self.asked(source, source.version(), [2], [7], [2, 3], [-1])
        assert [_rows(answers) for answers in single_answers] == [
            [(2, "Bob")],
            [],
            [(2, "Bob"), (3, None)],
            [],
        ]

    def test_a_key_that_it_can_not_have_has_no_row(self, source: LookupSource) -> None:
        """The largest and smallest whole numbers are keys like others."""
        (answers,) = self.asked(source, source.version(), [-(2**63), 1, 2**63 - 1])
        assert _rows(answers) == [(1, "Ann")]

    def test_a_version_is_held(self, source: LookupSource) -> None:
        """Tasks ask what the driver holds for them; a source that repeats can be asked for the
        same version again.
        """
        version = source.version()
        with source.held(version, 1) as held_version:
            (answers,) = self.asked(pickle.loads(pickle.dumps(source)), held_version, [1])  # noqa: S301
        assert _rows(answers) == [(1, "Ann")]
        assert bool(version) or not source.repeats
        if source.repeats:
            (repeated,) = self.asked(source, version, [1])
            assert _rows(repeated) == _rows(answers)

    def test_a_version_has_its_rows_or_is_refused(self, source: LookupSource) -> None:
        """Of a source that repeats, after its table has changed: by what was opened before, and by
        what is opened then. The new version has the new rows, and is refused where its columns
        have other types than it is asked for: a cast would make other rows.
        """
        if not source.repeats:
            return
        columns, version = self.columns(source), source.version()
        asks = [source.open(version, columns) for _ in range(2)]
        keys = pa.table({"id": pa.array([1, 3], pa.int64())})
        assert _rows(asks[0](keys)) == [(1, "Ann"), (3, None)]
        self.changed(source)
        for ask in (*asks, source.open(version, columns)):
            with suppress(RefusedError):
                assert _rows(ask(keys)) == [(1, "Ann"), (3, None)], "an older version has new rows"
        (now,) = self.asked(source, source.version(), [1, 3])
        assert _rows(now) == [(1, "Zoe"), (3, "Cid")], "the newest version has older rows"
        with pytest.raises(RefusedError):
            source.open(source.version(), columns.set(1, pa.field("name", pa.int64())))(keys)

    def test_a_source_travels(self, source: LookupSource) -> None:
        """It is a recipe: what it opened stays behind, and the copy answers the same."""
        original = self.asked(source, source.version(), [1, 2])
        words = pickle.dumps(source)
        assert len(words) < 4096
        copy = pickle.loads(words)  # noqa: S301
        assert (copy.identity, copy.repeats) == (source.identity, source.repeats)
        assert copy.schema().equals(source.schema())
        copied = self.asked(copy, copy.version(), [1, 2])
        assert list(map(_rows, copied)) == list(map(_rows, original))

    def test_threads_do_not_meet(self, source: LookupSource) -> None:
        """Several threads ask one source at the same time."""

        def work() -> Any:
            return [
                _rows(answers) for answers in self.asked(source, source.version(), *[[1, 2]] * 5)
            ]

        assert together([work] * 4) == [[[(1, "Ann"), (2, "Bob")]] * 5] * 4


def _rows(answers: Answers) -> list[tuple[Any, ...]]:
    rows = answers.rows.select(WANTED).to_pylist()
    return sorted(tuple(row.values()) for row in rows)
