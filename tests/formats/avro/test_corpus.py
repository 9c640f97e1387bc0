"""Each message of the corpus has the expected verdict from both decoders.

The decoders are the compiled pass and the strict decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.avro.corpus import BAD, GOOD, ROW
from tests.formats.avro.models import TEXT, Order
from windrow.ingest.formats.avro.decoder import AvroPass, avro_batch_decoder
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Columns

SCHEMA = parse_schema(TEXT, "the tests")
COLUMNS = Columns.of(Order)
STRICT = StrictAvro(SCHEMA, COLUMNS)


@pytest.fixture(scope="module")
def fast() -> AvroPass:
    return AvroPass(SCHEMA, COLUMNS)


def as_row(values: list[Any]) -> dict[str, Any]:
    """Returns the strict decoder's values as Arrow returns them."""
    return {
        c.name: pa.array([v], c.type).to_pylist()[0]
        for c, v in zip(COLUMNS.columns, values, strict=True)
    }


@pytest.mark.parametrize(("payload", "row"), GOOD.values(), ids=GOOD)
def test_good_ones_are_rows_by_both_ways(
    fast: AvroPass, payload: bytes, row: Mapping[str, Any]
) -> None:
    """A good message becomes its expected row, and the compiled pass takes it too."""
    expected = repr(as_row([(dict(ROW) | dict(row))[c.name] for c in COLUMNS.columns]))
    assert repr(as_row(STRICT.decode(payload))) == expected
    fast_rows = fast.decode(pa.array([payload], pa.binary()))
    assert fast_rows.mask.tolist() == [True]
    assert (
        repr(
            {
                c.name: a.to_pylist()[0]
                for c, a in zip(COLUMNS.columns, fast_rows.columns, strict=True)
            }
        )
        == expected
    )


@pytest.mark.parametrize(("payload", "reason"), BAD.values(), ids=BAD)
def test_bad_ones_are_refused_with_their_reason(
    fast: AvroPass, payload: bytes, reason: str
) -> None:
    """The strict decoder refuses a bad message with its reason.

    The compiled pass doesn't take it.
    """
    with pytest.raises(RefusedValueError) as refused:
        STRICT.decode(payload)
    assert refused.value.reason == reason
    assert fast.decode(pa.array([payload], pa.binary())).mask.tolist() == [False]


def test_all_of_them_together() -> None:
    """Good and bad messages in one batch keep their own verdicts and rows."""
    pairs = list(
        zip(
            (payload for payload, _ in GOOD.values()),
            (payload for payload, _ in BAD.values()),
            strict=False,
        )
    )
    decoded = avro_batch_decoder(SCHEMA, COLUMNS).decode(
        pa.array([payload for pair in pairs for payload in pair], pa.binary()), "dead"
    )
    assert decoded.row_index.to_pylist() == list(range(0, 2 * len(pairs), 2))
    assert decoded.dead_reason.to_pylist() == [reason for _, reason in BAD.values()][: len(pairs)]
    rows = [
        as_row([(dict(ROW) | dict(row))[c.name] for c in COLUMNS.columns])
        for _, row in GOOD.values()
    ]
    assert repr(decoded.rows.to_pylist()) == repr(rows)


def test_there_are_enough() -> None:
    """The corpus has at least sixty messages, and a bad message for each reason."""
    assert len(GOOD) + len(BAD) >= 60
    assert {reason for _, reason in BAD.values()} == {
        "not_avro",
        "invalid_utf8",
        "out_of_range",
        "missing",
        "too_deep",
        "duplicate_key",
    }
