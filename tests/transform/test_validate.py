"""The rules of a model as a transform, and the messages whose rows fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pytest
from pandera.errors import SchemaErrors

from tests.transform import floats
from tests.transform.orders import Order, rows
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.formats.shared.decoded import nothing
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.transform import Before, TransformContract, messages_for
from windrow.ingest.testing.contracts.values import dead, messages_with
from windrow.ingest.transform.validate import Validate

ORDERS = Columns.of(Order)
RULED = (
    "import pandera.polars as pp\nimport polars as pl\nclass M(pp.DataFrameModel):\n    id:"
    " pl.Int64 = pp.Field(ge=0)\n"
)


class TestValidate(TransformContract):
    """The rules of a model fulfil the contract of every transform."""

    @pytest.fixture
    def transform(self) -> Validate:
        return Validate(ModelReference("orders.py:Order", Path(__file__).parent))

    @pytest.fixture
    def input_rows(self) -> Before:
        good, bad, worse = (2, "EUR", 1, "S-1"), (-3, "CNY", 99, "X"), (400, None, 9, "S-1")
        batch = rows(good, bad, good, worse, good, good, bad)
        return Before(
            ORDERS,
            pa.RecordBatch.from_arrays(batch.columns, schema=ORDERS.arrow_schema),
            (0, 1, 1, 2, 3, 3, 4),
        )


def both(folder: Path) -> Callable[[pa.RecordBatch], Decoded]:
    """Returns a function that decodes and validates with the model in a folder."""
    decode, validate = (
        RowDecoder(ModelReference("m.py:M", folder), JsonEncoding()).open(),
        Validate(ModelReference("m.py:M", folder)).open(),
    )
    return lambda messages: validate(decode(messages), messages)


def test_a_failed_check_is_a_dead_letter_of_its_own_stage(tmp_path: Path) -> None:
    """A failed check is a dead letter of its own stage, with the message's index.

    Dead letters of both stages are in the order of messages.
    """
    (tmp_path / "m.py").write_text(RULED)
    decoded = both(tmp_path)(messages_with([b"x", b'{"id":-1}', b'{"id":1}', None, b'{"id":-2}']))
    assert (decoded.row_index.to_pylist(), decoded.rows.column("id").to_pylist()) == ([2], [1])
    check = "check:id:greater_than_or_equal_to"
    assert dead(decoded) == [
        (0, "value", "not_json"),
        (1, "rules", check),
        (3, "value", "tombstone"),
        (4, "rules", check),
    ]


def test_a_corrected_schema_counts_in_the_same_process(tmp_path: Path) -> None:
    """`open` loads corrected rules in the same process.

    Workers outlive runs, so a retry after a fix must use the new file.
    """
    (tmp_path / "m.py").write_text(RULED)
    assert both(tmp_path)(messages_with([b'{"id":-1}'])).rows.num_rows == 0
    (tmp_path / "m.py").write_text(RULED.replace("ge=0", "ge=-5"))
    assert both(tmp_path)(messages_with([b'{"id":-1}'])).rows.num_rows == 1


def test_the_schema_is_loaded_once_for_all_who_ask(tmp_path: Path) -> None:
    """A process loads the model once for decoder, rules and columns.

    It is loaded again only if the file's content changed.
    """
    (tmp_path / "m.py").write_text(
        RULED + "import pathlib\nwith (pathlib.Path(__file__).parent / 'loads').open('a') as f:"
        " f.write('x')\n"
    )
    for _ in range(2):
        both(tmp_path)(messages_with([b'{"id":1}']))
        Validate(ModelReference("m.py:M", tmp_path)).columns(
            RowDecoder(ModelReference("m.py:M", tmp_path), JsonEncoding()).columns
        )
    assert (tmp_path / "loads").read_text() == "x"


@pytest.mark.parametrize("model", floats.MODELS, ids=lambda model: model.__name__)
def test_nan_is_what_pandera_says(model: type[pp.DataFrameModel]) -> None:
    """NaN is refused in a column that isn't nullable, and else judged by the column's checks.

    This is pandera's verdict, for each format and step.
    """
    values = [3.0, float("nan"), None, float("inf"), -1.0]
    schema = Columns.of(model).arrow_schema
    batch = pa.record_batch([pa.array(values, schema.field("x").type)], names=["x"])
    everything = pa.array(range(len(values)), pa.int64())
    decoded = replace(nothing(batch.schema), rows=batch, row_index=everything)
    validate = Validate(ModelReference(f"floats.py:{model.__name__}", Path(__file__).parent)).open()
    output = validate(decoded, messages_for(decoded))
    assert output.row_index.to_pylist() == [
        i for i in range(len(values)) if _valid(model, batch[i : i + 1])
    ]


def _valid(model: type[pp.DataFrameModel], batch: pa.RecordBatch) -> bool:
    try:
        model.validate(pl.DataFrame(batch), lazy=True)
    except SchemaErrors:
        return False
    return True
