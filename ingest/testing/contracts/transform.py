"""The contract suite of `ports.transform.Transform`.

The suite of a transform supplies the fixtures `transform` and `input_rows`. `input_rows` has
rows of at least two messages, and at least one of the messages must keep a row.
"""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.ingest.ports.decoder import RULES, Decoded, Deletes, Refusal
from windrow.ingest.ports.transform import Transform
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.metadata_arrays import messages_of
from windrow.ingest.testing.contracts.values import check_shape, dead, deleted, verdicts


@dataclass(frozen=True)
class Before:
    """The input of a transform.

    Attributes:
        columns: the columns of the rows.
        rows: the rows.
        messages: the number of each row's message, from 0 on, ascending.
    """

    columns: Columns
    rows: pa.RecordBatch
    messages: tuple[int, ...]

    def decoded(self, *only: int, deletes: bool = False) -> Decoded:
        """Returns the result of a decoder: rows, two dead letters, one dropped and one filtered.

        Message n gets the number 2n + 1. The first number, 0, and the last number are those of
        the dead letters.

        Args:
            only: the messages whose rows are included; all without any.
            deletes: each message with rows also deletes a key.
        """
        chosen = [i for i, message in enumerate(self.messages) if not only or message in only]
        last = 2 * max(self.messages) + 2
        index = pa.array([2 * self.messages[i] + 1 for i in chosen], pa.int64())
        letters = (
            pa.array(["value"] * 2),
            pa.array(["odd", "even"]),
            pa.array(["Expected - at $", None], pa.string()),
        )
        chosen_rows = self.rows.take(pa.array(chosen, pa.int64()))
        decoded = Decoded(
            chosen_rows, index, pa.array([0, last], pa.int64()), *letters, dropped=1, filtered=1
        )
        which = pa.array(sorted(set(index.to_pylist())), pa.int64())
        return (
            replace(decoded, deletes=Deletes(pa.record_batch([which], ["number"]), which))
            if deletes
            else decoded
        )

    def count(self, *only: int) -> int:
        """Returns the number of messages in `decoded(*only)`."""
        return len(set(only or self.messages)) + 4


def messages_for(decoded: Decoded) -> pa.RecordBatch:
    """Returns messages that fit a decoder's result. Their offsets are their numbers."""
    index_arrays = [decoded.row_index, decoded.dead_index]
    count = max((int(i) for index in index_arrays for i in index.to_pylist()), default=-1) + 1
    topic, numbers = pa.array(["t"] * count), pa.array(range(count), pa.int64())
    return messages_of({"topic": topic, "partition": pa.repeat(0, count), "offset": numbers})


def apply(transform: Transform, decoded: Decoded) -> Decoded:
    """Returns the transform's result for a decoder's result."""
    return transform.open()(decoded, messages_for(decoded))


class TransformContract:
    """The suite that runs on every transform."""

    def apply_to(self, transform: Transform, input_rows: Before, *only: int) -> Decoded:
        """Returns the transform's result for some messages, after checking its form."""
        decoded = input_rows.decoded(*only)
        transformed = apply(transform, decoded)
        check_shape(
            transformed,
            transform.columns(input_rows.columns).arrow_schema,
            input_rows.count(*only),
            decoded.dead_index[1].as_py() + 1,
        )
        return transformed

    def test_each_message_is_in_one_place(self, transform: Transform, input_rows: Before) -> None:
        """Each message with rows keeps rows, is refused, or counts as filtered. Messages without
        rows aren't changed.
        """
        decoded, transformed = input_rows.decoded(), self.apply_to(transform, input_rows)
        row_messages = set(decoded.row_index.to_pylist())
        assert set(transformed.row_index.to_pylist()) <= row_messages
        new = [letter for letter in dead(transformed) if letter not in dead(decoded)]
        assert {index for index, _, _ in new} <= row_messages
        assert {stage for _, stage, _ in new} <= {RULES}
        assert [letter for letter in dead(transformed) if letter not in new] == dead(decoded)
        assert transformed.dropped == decoded.dropped
        assert transformed.valid + len(new) + transformed.filtered - decoded.filtered == len(
            row_messages
        )
        assert transformed.valid

    def test_a_message_is_judged_alone(self, transform: Transform, input_rows: Before) -> None:
        """The result for a message doesn't depend on the other messages of the batch."""
        together = verdicts(self.apply_to(transform, input_rows))
        for message in sorted(set(input_rows.messages)):
            single = verdicts(self.apply_to(transform, input_rows, message))
            assert single.get(2 * message + 1) == together.get(2 * message + 1)

    def test_deletes_pass_through(self, transform: Transform, input_rows: Before) -> None:
        """The deletes of a message stay, whatever the transform does with its rows. Only a refused
        message loses its deletes.
        """
        decoded = input_rows.decoded(deletes=True)
        transformed = apply(transform, decoded)
        refused = {index for index, _, _ in dead(transformed)}
        assert deleted(transformed) == [
            (index, key) for index, key in deleted(decoded) if index not in refused
        ]
        assert transformed.valid == len({index for index, _ in deleted(transformed)})
        assert (
            transformed.valid + len(refused) + transformed.dropped + transformed.filtered
            == input_rows.count()
        )

    def test_nothing_is_nothing(self, transform: Transform, input_rows: Before) -> None:
        """A batch without rows stays without rows, and has the transform's columns."""
        none = input_rows.decoded().refused(
            RULES, [Refusal(np.arange(input_rows.rows.num_rows), "reason", "detail")]
        )
        transformed = apply(transform, none)
        assert transformed.rows.num_rows == 0
        assert transformed.rows.schema.equals(transform.columns(input_rows.columns).arrow_schema)
        assert (dead(transformed), transformed.dropped, transformed.filtered) == (
            dead(none),
            none.dropped,
            none.filtered,
        )

    def test_it_leaves_what_it_was_given(self, transform: Transform, input_rows: Before) -> None:
        """A transform doesn't change its input."""
        decoded = input_rows.decoded()
        first = verdicts(decoded)
        apply(transform, decoded)
        assert verdicts(decoded) == first

    def test_a_transform_travels(self, transform: Transform, input_rows: Before) -> None:
        """A pickled transform is small, and its copy is equal, with the same columns and
        results.
        """
        first = verdicts(self.apply_to(transform, input_rows))
        words = pickle.dumps(transform)
        assert len(words) < 4096
        copy = pickle.loads(words)  # noqa: S301
        assert (copy, hash(copy)) == (transform, hash(transform))
        assert copy.columns(input_rows.columns) == transform.columns(input_rows.columns)
        assert verdicts(self.apply_to(copy, input_rows)) == first

    def test_threads_do_not_meet(self, transform: Transform, input_rows: Before) -> None:
        """Several threads that open one transform at the same time get the same results."""
        expected, outcomes, begin = (
            verdicts(self.apply_to(transform, input_rows)),
            [],
            threading.Barrier(4),
        )

        def work() -> None:
            begin.wait(timeout=60)
            step = transform.open()
            outcomes.append(
                [
                    verdicts(step(input_rows.decoded(), messages_for(input_rows.decoded())))
                    for _ in range(5)
                ]
            )

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert outcomes == [[expected] * 5] * 4
