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
        kept = [i for i, message in enumerate(self.messages) if not only or message in only]
        last = 2 * max(self.messages) + 2
        index = pa.array([2 * self.messages[i] + 1 for i in kept], pa.int64())
        letters = (
            pa.array(["value"] * 2),
            pa.array(["odd", "even"]),
            pa.array(["Expected - at $", None], pa.string()),
        )
        taken = self.rows.take(pa.array(kept, pa.int64()))
        told = Decoded(
            taken, index, pa.array([0, last], pa.int64()), *letters, dropped=1, filtered=1
        )
        which = pa.array(sorted(set(index.to_pylist())), pa.int64())
        return (
            replace(told, deletes=Deletes(pa.record_batch([which], ["number"]), which))
            if deletes
            else told
        )

    def count(self, *only: int) -> int:
        """Returns how many messages `decoded` stands for."""
        return len(set(only or self.messages)) + 4


def messages_for(decoded: Decoded) -> pa.RecordBatch:
    """Messages that such a verdict can be of: their offsets are their numbers."""
    every = [decoded.row_index, decoded.dead_index]
    count = max((int(i) for index in every for i in index.to_pylist()), default=-1) + 1
    topic, numbers = pa.array(["t"] * count), pa.array(range(count), pa.int64())
    return messages_of({"topic": topic, "partition": pa.repeat(0, count), "offset": numbers})


def apply(transform: Transform, decoded: Decoded) -> Decoded:
    """What a transform makes of a verdict."""
    return transform.open()(decoded, messages_for(decoded))


class TransformContract:
    """The promises."""

    def after(self, transform: Transform, before: Before, *only: int) -> Decoded:
        """What becomes of the rows; of the shape that all promise."""
        given = before.decoded(*only)
        found = apply(transform, given)
        whole(
            found,
            transform.columns(before.columns).arrow_schema,
            before.count(*only),
            given.dead_index[1].as_py() + 1,
        )
        return found

    def test_each_message_is_in_one_place(self, transform: Transform, before: Before) -> None:
        """Each message that had rows has some, is refused, or counts as filtered; what
        had none stays as it was.
        """
        given, found = before.decoded(), self.after(transform, before)
        had = set(given.row_index.to_pylist())
        assert set(found.row_index.to_pylist()) <= had
        new = [letter for letter in dead(found) if letter not in dead(given)]
        assert {index for index, _, _ in new} <= had
        assert {stage for _, stage, _ in new} <= {RULES}
        assert [letter for letter in dead(found) if letter not in new] == dead(given)
        assert found.dropped == given.dropped
        assert found.valid + len(new) + found.filtered - given.filtered == len(had)
        assert found.valid

    def test_a_message_is_judged_alone(self, transform: Transform, before: Before) -> None:
        """What becomes of a message's rows is the same whatever other messages are in the batch."""
        together = verdicts(self.after(transform, before))
        for message in sorted(set(before.messages)):
            alone = verdicts(self.after(transform, before, message))
            assert alone.get(2 * message + 1) == together.get(2 * message + 1)

    def test_deletes_pass_through(self, transform: Transform, before: Before) -> None:
        """What a message deletes it deletes whatever becomes of its rows, but for one
        that is refused: that does nothing at all.
        """
        given = before.decoded(deletes=True)
        found = apply(transform, given)
        refused = {index for index, _, _ in dead(found)}
        assert deleted(found) == [
            (index, key) for index, key in deleted(given) if index not in refused
        ]
        assert found.valid == len({index for index, _ in deleted(found)})
        assert found.valid + len(refused) + found.dropped + found.filtered == before.count()

    def test_nothing_is_nothing(self, transform: Transform, before: Before) -> None:
        """A batch without a row has none afterwards, with the right columns."""
        none = before.decoded().refused(
            RULES, [Refusal(np.arange(before.rows.num_rows), "reason", "detail")]
        )
        found = apply(transform, none)
        assert found.rows.num_rows == 0
        assert found.rows.schema.equals(transform.columns(before.columns).arrow_schema)
        assert (dead(found), found.dropped, found.filtered) == (
            dead(none),
            none.dropped,
            none.filtered,
        )

    def test_it_leaves_what_it_was_given(self, transform: Transform, before: Before) -> None:
        """The batch that came in is as it was."""
        given = before.decoded()
        first = verdicts(given)
        apply(transform, given)
        assert verdicts(given) == first

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
        expected, found, begin = verdicts(self.after(transform, before)), [], threading.Barrier(4)

        def work() -> None:
            begin.wait(timeout=60)
            step = transform.open()
            found.append(
                [verdicts(step(before.decoded(), messages_for(before.decoded()))) for _ in range(5)]
            )

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert found == [[expected] * 5] * 4
