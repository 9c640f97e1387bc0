"""What every `ports.transform.Transform` must keep.

The suite of a transform supplies the fixtures `transform` and `before`: columns that it
takes, and rows of them with the number of the message that each came from, at least two
messages of which one keeps a row.
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
from windrow.ingest.testing.contracts.values import dead, deleted, verdicts, whole


@dataclass(frozen=True)
class Before:
    """What a transform is given: columns, rows, and the message of each row (from 0, ascending)."""

    columns: Columns
    rows: pa.RecordBatch
    messages: tuple[int, ...]

    def decoded(self, *only: int, deletes: bool = False) -> Decoded:
        """The rows, of some of the messages only; beside them two dead letters, one
        dropped and one filtered message.

        Message n has the number 2n + 1 here: messages 0 and the last one were refused
        by the decoder. `deletes`: each message with rows deletes something, too.
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
        """Returns how many messages `decoded` stands for."""
        return len(set(only or self.messages)) + 4


def messages_for(decoded: Decoded) -> pa.RecordBatch:
    """Messages that such a verdict can be of: their offsets are their numbers."""
    index_arrays = [decoded.row_index, decoded.dead_index]
    count = max((int(i) for index in index_arrays for i in index.to_pylist()), default=-1) + 1
    topic, numbers = pa.array(["t"] * count), pa.array(range(count), pa.int64())
    return messages_of({"topic": topic, "partition": pa.repeat(0, count), "offset": numbers})


def apply(transform: Transform, decoded: Decoded) -> Decoded:
    """What a transform makes of a verdict."""
    return transform.open()(decoded, messages_for(decoded))


class TransformContract:
    """The promises."""

    def after(self, transform: Transform, before: Before, *only: int) -> Decoded:
        """What becomes of the rows; of the shape that all promise."""
        decoded = before.decoded(*only)
        transformed = apply(transform, decoded)
        whole(
            transformed,
            transform.columns(before.columns).arrow_schema,
            before.count(*only),
            decoded.dead_index[1].as_py() + 1,
        )
        return transformed

    def test_each_message_is_in_one_place(self, transform: Transform, before: Before) -> None:
        """Each message that had rows has some, is refused, or counts as filtered; what
        had none stays as it was.
        """
        decoded, transformed = before.decoded(), self.after(transform, before)
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

    def test_a_message_is_judged_alone(self, transform: Transform, before: Before) -> None:
        """What becomes of a message's rows is the same whatever other messages are in the batch."""
        together = verdicts(self.after(transform, before))
        for message in sorted(set(before.messages)):
            single = verdicts(self.after(transform, before, message))
            assert single.get(2 * message + 1) == together.get(2 * message + 1)

    def test_deletes_pass_through(self, transform: Transform, before: Before) -> None:
        """What a message deletes it deletes whatever becomes of its rows, but for one
        that is refused: that does nothing at all.
        """
        decoded = before.decoded(deletes=True)
        transformed = apply(transform, decoded)
        refused = {index for index, _, _ in dead(transformed)}
        assert deleted(transformed) == [
            (index, key) for index, key in deleted(decoded) if index not in refused
        ]
        assert transformed.valid == len({index for index, _ in deleted(transformed)})
        assert (
            transformed.valid + len(refused) + transformed.dropped + transformed.filtered
            == before.count()
        )

    def test_nothing_is_nothing(self, transform: Transform, before: Before) -> None:
        """A batch without a row has none afterwards, with the right columns."""
        none = before.decoded().refused(
            RULES, [Refusal(np.arange(before.rows.num_rows), "reason", "detail")]
        )
        transformed = apply(transform, none)
        assert transformed.rows.num_rows == 0
        assert transformed.rows.schema.equals(transform.columns(before.columns).arrow_schema)
        assert (dead(transformed), transformed.dropped, transformed.filtered) == (
            dead(none),
            none.dropped,
            none.filtered,
        )

    def test_it_leaves_what_it_was_given(self, transform: Transform, before: Before) -> None:
        """The batch that came in is as it was."""
        decoded = before.decoded()
        first = verdicts(decoded)
        apply(transform, decoded)
        assert verdicts(decoded) == first

    def test_a_transform_travels(self, transform: Transform, before: Before) -> None:
        """It is a recipe: what it built stays behind, and the copy is equal, promises
        the same, and does the same.
        """
        first = verdicts(self.after(transform, before))
        words = pickle.dumps(transform)
        assert len(words) < 4096
        copy = pickle.loads(words)  # noqa: S301
        assert (copy, hash(copy)) == (transform, hash(transform))
        assert copy.columns(before.columns) == transform.columns(before.columns)
        assert verdicts(self.after(copy, before)) == first

    def test_threads_do_not_meet(self, transform: Transform, before: Before) -> None:
        """Several threads that open one transform at the same time get the same verdicts."""
        expected, outcomes, begin = (
            verdicts(self.after(transform, before)),
            [],
            threading.Barrier(4),
        )

        def work() -> None:
            begin.wait(timeout=60)
            step = transform.open()
            outcomes.append(
                [verdicts(step(before.decoded(), messages_for(before.decoded()))) for _ in range(5)]
            )

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert outcomes == [[expected] * 5] * 4
