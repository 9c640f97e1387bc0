"""Comparison of a compiled pass with the strict decoder, which is the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Columns


class Both:
    """A compiled pass and a strict decoder for the same columns.

    Attributes:
        fast_rows: the result of the compiled pass for the messages that were compared last.
        exact: whether the pass takes everything that the strict decoder takes. If false, it may
            leave some messages to the strict decoder.
        ignored: for each compared message, whether the strict decoder saw a field without a
            column.
    """

    fast_rows: Any

    exact = False

    def __init__(self, columns: Columns, fast: Any, strict: Any) -> None:
        self.columns, self.fast, self.strict = columns, fast, strict
        self.ignored = list[bool]()

    def compare(self, messages: Sequence[bytes]) -> tuple[int, int]:
        """Checks each message's result by both decoders.

        Returns:
            The number of messages that the pass took, and the number of rows.
        """
        fast_rows = self.fast_rows = self.fast.decode(pa.array(messages, pa.binary()))
        self.ignored.clear()
        truth = [self.strictly(message) for message in messages]
        rows, mask = [not isinstance(row, str) for row in truth], fast_rows.mask.tolist()
        for message, fast, row in zip(messages, mask, rows, strict=True):
            assert row == fast if self.exact else row >= fast, message
        ignored = [i for i in np.flatnonzero(fast_rows.mask).tolist() if self.ignored[i]]
        assert fast_rows.ignored.tolist() == ignored
        for message, row, is_ignoring in zip(messages, rows, self.ignored, strict=True):
            assert not row or bool(list(self.strict.ignored_fields(message))) == is_ignoring
        expected = [row for row, fast in zip(truth, mask, strict=True) if fast]
        for i, (column, array) in enumerate(
            zip(self.columns.columns, fast_rows.columns, strict=True)
        ):
            array.validate(full=True)
            assert array.type == column.type
            expected_array = pa.array([row[i] for row in expected], column.type)
            # repr distinguishes 0.0 from -0.0.
            assert repr(array.to_pylist()) == repr(expected_array.to_pylist()), column.name
        return sum(mask), sum(rows)

    def strictly(self, message: bytes) -> list[Any] | str:
        """Returns the strict decoder's values, or the reason of its refusal."""
        self.strict.truncation.ignored = False
        try:
            return self.strict.decode(message)  # type: ignore[no-any-return]
        except RefusedValueError as refused:
            return refused.reason
        finally:
            self.ignored.append(self.strict.truncation.ignored)
