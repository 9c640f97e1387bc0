"""The contract suite of `ports.decoder.Decoder`.

The suite of a format supplies the fixture `decoder`, values in `GOOD` that become rows, and values
in `BAD` that are refused. Each bad value contains the word `hunter2`, which must not appear in
a reason.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windrow.ingest.ports.decoder import SCHEMA, VALUE, Decoded, Decoder
from windrow.ingest.testing.contracts.values import check_shape, dead, messages_with, verdicts

SECRET = b"hunter2"
_FEWER = settings(
    max_examples=max(1, settings().max_examples // 2),
    deadline=None,
    # the same suite runs on several decoders
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
        HealthCheck.too_slow,
    ],
)
"""Half of the profile's examples, because each example is a batch of messages."""


class DecoderContract:
    """The suite that runs on every decoder.

    Attributes:
        GOOD: values that become rows.
        BAD: values that are refused.
    """

    GOOD: ClassVar[Sequence[bytes]]
    BAD: ClassVar[Sequence[bytes]]

    def messages(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """Returns messages with these values.

        The suite of a decoder that also reads keys or headers overrides it.
        """
        return messages_with(values)

    def decode_values(self, decoder: Decoder, values: Sequence[bytes | None]) -> Decoded:
        """Returns the result for messages with these values, after checking its form."""
        decoded = decoder.open()(self.messages(values))
        check_shape(decoded, decoder.columns.arrow_schema, len(values))
        return decoded

    def test_each_message_is_in_one_place(self, decoder: Decoder) -> None:
        """Good messages become rows, and bad messages become dead letters of the stages value or
        schema, with a reason, in the order of the messages.
        """
        mixed = [value for pair in zip(self.GOOD, self.BAD, strict=False) for value in pair]
        decoded = self.decode_values(decoder, mixed)
        assert sorted(set(decoded.row_index.to_pylist())) == [
            i for i in range(len(mixed)) if i % 2 == 0
        ]
        assert [index for index, _, _ in dead(decoded)] == [i for i in range(len(mixed)) if i % 2]
        assert {stage for _, stage, _ in dead(decoded)} <= {VALUE, SCHEMA}
        assert all(
            reason and reason.isprintable() and len(reason) < 100 for _, _, reason in dead(decoded)
        )

    @pytest.mark.parametrize("count", [0, 1])
    def test_batches_of_one_kind(self, decoder: Decoder, count: int) -> None:
        """A batch without messages, rows or dead letters has a valid form."""
        assert self.decode_values(decoder, self.GOOD[:count]).valid == count
        assert len(self.decode_values(decoder, self.BAD[:count]).dead_index) == count

    def test_a_message_is_judged_alone(self, decoder: Decoder) -> None:
        """The result for a message is the same in any batch, at any position, even in a slice of
        another batch.
        """
        values = [*self.GOOD, None, *self.BAD, b"", *self.GOOD]
        together, decode = self.decode_values(decoder, values), decoder.open()
        decoded_alone = [decode(self.messages([value])) for value in values]
        assert verdicts(together) == {
            i: verdicts(single)[0]
            for i, single in enumerate(decoded_alone)
            if 0 in verdicts(single)
        }
        for name in ("dropped", "filtered", "truncated"):
            assert getattr(together, name) == sum(getattr(single, name) for single in decoded_alone)
        assert together.ignoring.tolist() == [
            i for i, single in enumerate(decoded_alone) if len(single.ignoring)
        ]
        assert together.cut.tolist() == [
            i for i, single in enumerate(decoded_alone) if len(single.cut)
        ]
        part = decode(self.messages(values).slice(1, len(self.GOOD)))
        assert verdicts(part) == {
            i - 1: verdict for i, verdict in verdicts(together).items() if 1 <= i <= len(self.GOOD)
        }

    def test_a_payload_stays_out_of_the_reasons(self, decoder: Decoder) -> None:
        """Reason and detail of a refusal have no value of the message."""
        assert all(SECRET in value for value in self.BAD)
        decoded = self.decode_values(decoder, self.BAD)
        assert len(decoded.dead_index) == len(self.BAD)
        assert SECRET.decode() not in str(
            [decoded.dead_reason.to_pylist(), decoded.dead_detail.to_pylist()]
        )

    @_FEWER
    @given(values=st.lists(st.none() | st.binary(max_size=60), max_size=20))
    def test_no_message_makes_it_raise(self, decoder: Decoder, values: list[bytes | None]) -> None:
        """A decoder doesn't raise for any bytes, and each message has exactly one outcome."""
        self.decode_values(decoder, values)

    def test_monsters_cost_themselves_only(self, decoder: Decoder) -> None:
        """Good messages still become rows, if messages of 1 to 4 MiB are between them."""
        monsters = [
            b"\x00" * (4 << 20),
            b"[" * (4 << 20),
            (self.GOOD[0] * ((1 << 20) // len(self.GOOD[0]) + 1)),
        ]
        decoded = self.decode_values(decoder, [self.GOOD[0], *monsters, self.GOOD[0]])
        assert {0, len(monsters) + 1} <= set(decoded.row_index.to_pylist())
        assert verdicts(decoded)[0] == verdicts(decoded)[len(monsters) + 1]

    def test_a_decoder_travels(self, decoder: Decoder) -> None:
        """A pickled decoder is small, even after use, and its copy is equal, with the same columns
        and results.
        """
        original = self.decode_values(decoder, self.GOOD)
        words = pickle.dumps(decoder)
        assert len(words) < 65_536  # a decoder may contain the text of its schema files
        copy = pickle.loads(words)  # noqa: S301
        assert (copy, hash(copy), copy.columns) == (decoder, hash(decoder), decoder.columns)
        assert verdicts(self.decode_values(copy, self.GOOD)) == verdicts(original)

    def test_threads_do_not_meet(self, decoder: Decoder) -> None:
        """Several threads that open one decoder at the same time get the same results."""
        expected, outcomes, begin = (
            verdicts(self.decode_values(decoder, self.GOOD)),
            [],
            threading.Barrier(4),
        )

        def work() -> None:
            begin.wait(timeout=60)
            decode = decoder.open()
            outcomes.append([verdicts(decode(self.messages(self.GOOD))) for _ in range(20)])

        threads: list[Any] = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert outcomes == [[expected] * 20] * 4

    def test_columns_are_named_and_typed(self, decoder: Decoder) -> None:
        """A decoder has at least one column, and no two names differ only by case."""
        names = [column.name.casefold() for column in decoder.columns.columns]
        assert names
        assert len(set(names)) == len(names)
        assert isinstance(decoder.columns.arrow_schema, pa.Schema)
