"""The contract suite of `ports.lookup.LookupSource`.

The suite of a source supplies the fixture `source`, a source that has exactly the rows of
`PEOPLE`. If the source repeats, the suite's `changed` replaces them by the rows of `CHANGED`.
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
from windrow.ingest.testing.contracts.windows import run_together

PEOPLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": ["Ann", "Bob", None],
        "city": ["Kyiv", None, None],
    }
)
"""The rows of the source. Its integers may have any width."""

CHANGED = PEOPLE.set_column(1, "name", pa.array(["Zoe", "Bob", "Cid"]))
"""The rows of the source after `changed`, with the same types."""

WANTED = ("id", "name")


class LookupContract:
    """The suite that runs on every lookup source."""

    def changed(self, source: LookupSource) -> None:
        """Changes the table or service of a source that repeats, so that it has `CHANGED`."""
        raise NotImplementedError("a source that repeats needs `changed` in its suite")

    def columns(self, source: LookupSource) -> pa.Schema:
        """Returns the columns `WANTED`, with the source's types."""
        schema = source.schema()
        return pa.schema([schema.field(name) for name in WANTED])

    def ask_all(self, source: LookupSource, version: str, *keys: Sequence[int]) -> list[Answers]:
        """Opens the source once, and returns its answers to several requests.

        Args:
            source: the source.
            version: the version to open.
            keys: the keys of each request.
        """
        columns = self.columns(source)
        ask = source.open(version, columns)
        all_answers = [ask(pa.table({"id": pa.array(ids, pa.int64())})) for ids in keys]
        for answers in all_answers:
            rows = answers.rows.select(columns.names)
            assert rows.schema.types == columns.types
            assert answers.requests >= 0
        return all_answers

    def test_it_says_what_it_has(self, source: LookupSource) -> None:
        """A source has a printable identity, and columns with types that a table can have."""
        assert source.identity.isprintable()
        assert source.identity
        types = {name: source.schema().field(name).type for name in PEOPLE.column_names}
        assert pa.types.is_integer(types.pop("id"))
        assert types == {"name": pa.string(), "city": pa.string()}

    def test_each_key_has_its_row(self, source: LookupSource) -> None:
        """Each key gets its row, a key without a row gets none, and null values stay null."""
        (answers,) = self.ask_all(source, source.version(), [1, 3, 7])
        assert _rows(answers) == [(1, "Ann"), (3, None)]

    def test_one_question_after_the_other(self, source: LookupSource) -> None:
        """The answer to a request doesn't depend on earlier requests."""
        single_answers = self.ask_all(source, source.version(), [2], [7], [2, 3], [-1])
        assert [_rows(answers) for answers in single_answers] == [
            [(2, "Bob")],
            [],
            [(2, "Bob"), (3, None)],
            [],
        ]

    def test_a_key_that_it_can_not_have_has_no_row(self, source: LookupSource) -> None:
        """The largest and smallest int64 are valid keys, even if the column's type is smaller."""
        (answers,) = self.ask_all(source, source.version(), [-(2**63), 1, 2**63 - 1])
        assert _rows(answers) == [(1, "Ann")]

    def test_a_version_is_held(self, source: LookupSource) -> None:
        """Tasks can open the version that the driver holds. A source that repeats can be asked
        for the same version again.
        """
        version = source.version()
        with source.hold(version, 1) as held_version:
            (answers,) = self.ask_all(pickle.loads(pickle.dumps(source)), held_version, [1])  # noqa: S301
        assert _rows(answers) == [(1, "Ann")]
        assert bool(version) or not source.is_repeatable
        if source.is_repeatable:
            (repeated,) = self.ask_all(source, version, [1])
            assert _rows(repeated) == _rows(answers)

    def test_a_version_has_its_rows_or_is_refused(self, source: LookupSource) -> None:
        """After the table of a source that repeats has changed, the old version gives the old rows
        or is refused, and the new version gives the new rows. A version is refused if a column
        has another type than requested, because a cast would change values.
        """
        if not source.is_repeatable:
            return
        columns, version = self.columns(source), source.version()
        asks = [source.open(version, columns) for _ in range(2)]
        keys = pa.table({"id": pa.array([1, 3], pa.int64())})
        assert _rows(asks[0](keys)) == [(1, "Ann"), (3, None)]
        self.changed(source)
        for ask in (*asks, source.open(version, columns)):
            with suppress(RefusedError):
                assert _rows(ask(keys)) == [(1, "Ann"), (3, None)], "an older version has new rows"
        (now,) = self.ask_all(source, source.version(), [1, 3])
        assert _rows(now) == [(1, "Zoe"), (3, "Cid")], "the newest version has older rows"
        with pytest.raises(RefusedError):
            source.open(source.version(), columns.set(1, pa.field("name", pa.int64())))(keys)

    def test_a_source_travels(self, source: LookupSource) -> None:
        """A pickled source is small, even after use, and its copy gives the same answers."""
        original = self.ask_all(source, source.version(), [1, 2])
        words = pickle.dumps(source)
        assert len(words) < 4096
        copy = pickle.loads(words)  # noqa: S301
        assert (copy.identity, copy.is_repeatable) == (source.identity, source.is_repeatable)
        assert copy.schema().equals(source.schema())
        copied = self.ask_all(copy, copy.version(), [1, 2])
        assert list(map(_rows, copied)) == list(map(_rows, original))

    def test_threads_do_not_meet(self, source: LookupSource) -> None:
        """Several threads can ask one source at the same time."""

        def work() -> Any:
            return [
                _rows(answers) for answers in self.ask_all(source, source.version(), *[[1, 2]] * 5)
            ]

        assert run_together([work] * 4) == [[[(1, "Ann"), (2, "Bob")]] * 5] * 4


def _rows(answers: Answers) -> list[tuple[Any, ...]]:
    rows = answers.rows.select(WANTED).to_pylist()
    return sorted(tuple(row.values()) for row in rows)
