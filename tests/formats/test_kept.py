"""Rows keep what no column is for, from the message to the table (`unknown: keep`)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.formats.confluent.registries import FixedRegistry, framed
from tests.sinks.delta.pieces import delta_pieces
from windrow.ingest.admin.try_steps import messages_of_lines, trace_steps
from windrow.ingest.assemble import assemble, declared_columns, table_columns
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.transform import TransformSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.infer.schema_drift import check, find_model_changes
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.source import Topics
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.schema.columns import REST
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.contracts.values import messages_with
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = Window("orders", START, START + timedelta(hours=1))
TP = TopicPartition("shop.orders", 0)
MODELS = """\
import pandera.polars as pa
import polars as pl


class Order(pa.DataFrameModel):
    id: pl.Int64 = pa.Field(ge=0)
    note: pl.String = pa.Field(nullable=True)


class Wide(Order):
    vip: pl.String = pa.Field(nullable=True)


class Kept(Order):
    rest: pl.String = pa.Field(nullable=True, alias="_rest")


class Taken(Order):
    rest: pl.String = pa.Field(alias="_REST")
"""
STEPS = {
    "steps": [
        {"sql": "SELECT *, _rest ->> 'vip' AS vip FROM rows WHERE id < 9"},
        {"sql": "SELECT id, note, vip FROM rows"},
    ],
    "schema": "models.py:Wide",
}


def pipeline(folder: Path, values: list[bytes], **attributes: Any) -> Pipeline:
    """Returns a pipeline of a topic with values."""
    (folder / "models.py").write_text(MODELS)
    broker = MemoryBroker()
    broker.create_topic(TP.topic, partitions=1)
    for i, value in enumerate(values):
        broker.produce(TP, value, timestamp=START + timedelta(seconds=i), key=b'{"id":1}')
    spec = parse_spec(
        {
            "id": "orders",
            "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TP.topic},
            "window": {"grid": "hourly", "start": START},
            "decode": {"schema": "models.py:Order", "unknown": "keep"},
            "sink": {"path": str(folder / "table")},
            "state": str(folder / "state.db"),
            "metadata": {"timestamp": "none"},
            "limits": {"max_dead_ratio": 1.0},
            **attributes,
        },
        folder,
    )
    made = assemble(spec, LocalEngine())
    assert declared_columns(spec).arrow_schema == made.columns().arrow_schema
    return replace(made, broker=broker, reader=partial(MemoryReader, broker, rows_max=2))


def table(folder: Path, values: list[bytes], **attributes: Any) -> list[dict[str, Any]]:
    """Returns the rows that a pipeline's first window makes of values."""
    run(pipeline(folder, values, **attributes), HOUR, Request("r"))
    hidden = ["_topic", "_partition", "_offset", "_window"]
    return [
        row
        for piece in delta_pieces(str(folder / "table"))
        for row in piece.drop(hidden).to_pylist()
    ]


def test_the_column_goes_by_the_rules_to_the_table(tmp_path: Path) -> None:
    """The table has the text of each row, and rows that break a rule take theirs along."""
    values = [b'{"id":1,"vip":2.50}', b'{"id":-1,"x":1}', b'{"id":2}', b"[]", b'{"x":{},"id":3}']
    assert table(tmp_path, values) == [
        {"id": 1, "note": None, REST: '{"vip":2.50}'},
        {"id": 2, "note": None, REST: None},
        {"id": 3, "note": None, REST: '{"x":{}}'},
    ]


def test_steps_see_it_by_name_alone(tmp_path: Path) -> None:
    """A SELECT reads the text by its name. It isn't part of `*`, and reaches the table."""
    values = [b'{"id":1,"vip":"a"}', b'{"id":9,"vip":"b"}', b'{"id":2,"x":1}', b'{"id":3}']
    assert table(tmp_path, values, transform=STEPS) == [
        {"id": 1, "note": None, "vip": "a", REST: '{"vip":"a"}'},
        {"id": 2, "note": None, "vip": None, REST: '{"x":1}'},
        {"id": 3, "note": None, "vip": None, REST: None},
    ]


def test_each_step_is_shown_with_it(tmp_path: Path) -> None:
    """`windrow try` shows the text after each step."""
    messages = messages_of_lines([b'{"id":1,"vip":"a"}'], TP.topic)
    steps = trace_steps(pipeline(tmp_path, [], transform=STEPS), messages)
    assert len(steps) == 5
    assert {step.rows[0][REST] for step in steps} == {'{"vip":"a"}'}


def test_a_python_step_sees_it_beside_the_rows(tmp_path: Path) -> None:
    """A function of Python's gets the text among the columns that aren't the schema's."""
    (tmp_path / "steps.py").write_text(
        "import polars as pl\n\n\ndef read(rows: pl.DataFrame) -> pl.DataFrame:\n"
        "    return rows.with_columns(vip=pl.col('_rest')).filter(pl.col('id') > 1)\n"
    )
    steps = [{"python": "steps.py:read", "schema": "models.py:Wide"}]
    rows = table(tmp_path, [b'{"id":1,"x":1}', b'{"id":2,"x":2}'], transform={"steps": steps})
    assert rows == [{"id": 2, "note": None, "vip": '{"x":2}', REST: '{"x":2}'}]


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([{"spark": "f.py:f"}], ["id", "note", REST]),
        ([{"spark": "f.py:f", "schema": "models.py:Kept"}], ["id", "note", REST]),
        ([{"spark": "f.py:f", "schema": "models.py:Order"}], ["id", "note"]),
        ([{"sql": "SELECT id FROM rows"}, {"spark": "f.py:f"}], ["id", REST]),
        ([{"spark": "f.py:f"}, {"sql": "SELECT *, 1 AS x FROM rows"}], ["id", "note", REST, "x"]),
    ],
)
def test_a_spark_step_gives_it_as_it_gives_other_columns(
    tmp_path: Path, steps: list[dict[str, str]], names: list[str]
) -> None:
    """The table has the text behind a `spark` step without a schema, or if the schema has it."""
    (tmp_path / "f.py").write_text("def f(rows):\n    return rows\n")
    spec = replace_steps(pipeline(tmp_path, []), steps)
    assert table_columns(spec).arrow_schema.names == names
    assert declared_columns(spec).arrow_schema.names == names


def replace_steps(made: Pipeline, steps: list[dict[str, str]]) -> PipelineSpec:
    """Returns the spec of a pipeline with other steps."""
    transform = TransformSpec.model_validate({"steps": steps})
    return made.spec.model_copy(update={"transform": transform})


def test_columns_of_key_and_header(tmp_path: Path) -> None:
    """The value's text is kept beside columns of the key and of headers."""
    decode = {
        "schema": "models.py:Order",
        "unknown": "keep",
        "key": {"fields": ["id"]},
        "fields_include": "except_key",
        "headers": {},
    }
    rows = table(tmp_path, [b'{"note":"n","id":7}'], decode=decode)
    assert rows == [{"id": 1, "note": "n", REST: '{"id":7}'}]


@pytest.mark.parametrize(
    ("decode", "value", "rests"),
    [
        ({"root": "data"}, b'{"a":1,"data":{"id":1,"b":2}}', ['{"b":2}']),
        ({"schema_include": True}, b'{"schema":{},"payload":{"id":1,"b":2}}', ['{"b":2}']),
        ({"rows": "array"}, b'[{"id":1},{"id":2,"b":[2]}]', [None, '{"b":[2]}']),
        ({"rows": "lines"}, b'{"id":1,"a":1}\n{"id":2}\n', ['{"a":1}', None]),
        ({"codecs": ["json"]}, b'"{\\"id\\":1,\\"b\\":2}"', ['{"b":2}']),
        ({"format": "csv"}, b'1,n,"a,""b""",\n', ['{"3":"a,\\"b\\"","4":""}']),
        ({"format": "json-schema-confluent"}, b'\0\0\0\0\7{"id":1,"b":2}', ['{"b":2}']),
        ({"format": "debezium-json"}, b'{"op":"c","after":{"id":1,"b":2},"x":1}', ['{"b":2}']),
        ({"format": "debezium-json"}, b'{"op":"d","before":{"id":1,"b":2}}', ['{"b":2}']),
        (
            {"format": "debezium-json", "flattened": True},
            b'{"id":1,"__op":"c","b":2}',
            ['{"b":2}'],
        ),
        (
            {"format": "debezium-json", "schema_include": True},
            b'{"schema":{},"payload":{"op":"c","after":{"id":1,"b":2}}}',
            ['{"b":2}'],
        ),
        (
            {"format": "debezium-json-schema-confluent"},
            b'\0\0\0\0\7{"op":"c","after":{"id":1,"b":2}}',
            ['{"b":2}'],
        ),
    ],
)
def test_each_form_of_json_and_csv(
    tmp_path: Path, decode: dict[str, Any], value: bytes, rests: list[str | None]
) -> None:
    """Rows keep what the row has beside its columns, in each format and form that can."""
    batch = decoded(tmp_path, value, **decode)
    assert batch.rows.column(REST).to_pylist() == rests


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "b", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ORDER]},
        {"name": "after", "type": ["null", "Order"]},
        {"name": "op", "type": "string"},
        {"name": "at", "type": "long"},
    ],
}


@pytest.mark.parametrize("frame", ["", "-confluent"])
@pytest.mark.parametrize(
    ("format_", "schema", "value"),
    [
        ("avro", ORDER, b"\2\4\0"),
        ("debezium-avro", EVENT, b"\0\2\2\4\0\2c\6"),
        ("debezium-avro", EVENT, b"\2\2\4\0\0\2d\6"),
    ],
)
def test_each_form_of_avro(
    tmp_path: Path, format_: str, schema: dict[str, Any], value: bytes, frame: str
) -> None:
    """Rows keep what the writer's record has beside their columns, by a spec's or registry's
    schema, and of a change what its row has.
    """
    given = {} if frame else {"writer_schema": schema}
    message = framed(7, value) if frame else value
    schemas = (WriterSchema("7", "AVRO", json.dumps(schema)),)
    batch = decoded(tmp_path, message, format=format_ + frame, schemas=schemas, **given)
    assert batch.rows.to_pylist() == [{"id": 1, "note": None, REST: '{"b":2}'}]
    assert [(*told.fields(0),) for told in batch.ignored if len(told.index)] == [("b",)]


def test_infer_compares_the_columns_of_fields(tmp_path: Path) -> None:
    """`windrow infer --check` and `--update` see the schema's columns, not that of the texts."""
    value = b'{"id":1,"note":"","vip":2}'
    made = pipeline(tmp_path, [value])
    selection = Topics((TP.topic,))
    found = check(made, selection, None, 10)
    assert [finding.message for finding in found.findings] == [
        "Field 'vip' of 1 sampled documents has no column"
    ]
    changes = find_model_changes(made, selection, None, 10)
    assert [change.path for change in changes] == [("vip",)]


def decoded(
    folder: Path,
    *values: bytes,
    primary_key: tuple[str, ...] = (),
    schemas: tuple[WriterSchema, ...] = (),
    **decode: Any,
) -> Decoded:
    """Returns the verdict of a `decode` section on values."""
    (folder / "models.py").write_text(MODELS)
    attributes = {"format": "json", "schema": "models.py:Order", "unknown": "keep", **decode}
    section = section_at(FORMATS[attributes["format"]]).model_validate(attributes)
    decoder = make_decoder(section, folder, primary_key, keeps_unavailable=True)
    if isinstance(decoder, ConfluentDecoder):
        decoder = decoder.asking(FixedRegistry(schemas))
    assert decoder.columns.arrow_schema.names == ["id", "note", REST]
    batch: Decoded = decoder.open()(messages_with(list(values)))
    assert not len(batch.dead_index), batch.dead_detail
    return batch


def test_a_change_that_leaves_a_value_alone_has_its_own_text(tmp_path: Path) -> None:
    """The text is that of the last change: the table never keeps an older one."""
    mark = b"__debezium_unavailable_value"
    batch = decoded(
        tmp_path,
        b'{"op":"u","after":{"id":1,"note":"%s","big":"%s"}}' % (mark, mark),
        b'{"op":"u","after":{"id":1,"note":"%s"}}' % mark,
        format="debezium-json",
        primary_key=("id",),
    )
    assert batch.unavailable is not None
    assert batch.unavailable.to_pylist() == [["note"], ["note"]]
    assert batch.rows.column(REST).to_pylist() == [f'{{"big":"{mark.decode()}"}}', None]


@pytest.mark.parametrize("format_", ["protobuf", "maxwell-json", "raw"])
def test_other_formats_refuse_it(format_: str) -> None:
    """A format that can't keep anything says which formats can."""
    with pytest.raises(ValueError, match="keep goes with the formats json, avro, csv and "):
        section_at(FORMATS[format_]).model_validate({"format": format_, "unknown": "keep"})


def test_the_name_must_be_free(tmp_path: Path) -> None:
    """A schema with a column of the text's name is refused."""
    with pytest.raises(SpecError, match="adds the column _rest, which the schema has already"):
        decoded(tmp_path, schema="models.py:Taken")
