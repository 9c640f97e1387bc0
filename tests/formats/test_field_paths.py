"""Columns that are inside other objects of a message, or have other names there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.formats.json import schemas
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.field_paths import FieldReader, columns_as_sent
from windrow.ingest.formats.json.decoder import json_batch_decoder
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.message_part import Part
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.testing.contracts.values import dead, messages_with

ROOT = Part(is_named=True, root=("a", "b"))


@pytest.mark.parametrize("seed", range(4))
def test_rows_below_a_root(seed: int) -> None:
    """A row below a root has the verdict and the values of the same row at the top.

    The compiled pass takes the same messages.
    """
    dice = random.Random(seed)
    columns = schemas.columns_of(dice)
    documents = [schemas.document(dice, columns) for _ in range(200)]
    at_top, values_at_top = json_batch_decoder(columns), pa.array(documents, pa.binary())
    flat = at_top.decode(values_at_top, "dead")
    below = ROOT.of(columns)
    decoder = json_batch_decoder(columns_as_sent(below))
    values = pa.array([b'{"a":{"x":1,"b":%s}}' % document for document in documents], pa.binary())
    nested = FieldReader(below).take(decoder.decode(values, "dead"))
    assert nested.dead_index == flat.dead_index
    assert repr(nested.rows.to_pylist()) == repr(flat.rows.to_pylist())
    assert nested.ignoring.tolist() == flat.ignoring.tolist()
    taken_at_top = at_top.fast.decode(values_at_top, 0).mask
    assert np.all(decoder.fast.decode(values, 0).mask >= taken_at_top)


MODEL = """\
import pandera.polars as pa
import polars as pl


class Sale(pa.DataFrameModel):
    number: pl.Int64 = pa.Field(metadata=%r)
    shop: pl.Struct({"name": pl.String}) = pa.Field(nullable=True, metadata={"path": "a.shop"})
"""
PROTO = """syntax = "proto3"; message S { string name = 1; }
message A { int64 number = 1; S shop = 2; } message Sale { A a = 1; }"""


def decoded(folder: Path, metadata: dict[str, Any], values: list[bytes], **decode: Any) -> Decoded:
    """Returns the decoded values, with metadata of the column `number`."""
    (folder / "schema.py").write_text(MODEL % metadata)
    (folder / "sale.proto").write_text(PROTO)
    section = section_at(FORMATS[decode["format"]])
    decoder = make_decoder(section.model_validate({"schema": "schema.py:Sale", **decode}), folder)
    assert [column.name for column in decoder.columns.columns] == ["number", "shop"]
    batch: Decoded = decoder.open()(messages_with(values))
    return batch


def test_protobuf(tmp_path: Path) -> None:
    """A row inside a message of Protobuf is read by its root and its paths."""
    options = {"descriptor": "sale.proto", "message": "Sale", "root": "a"}
    values = [b"\x0a\x07\x08\x01\x12\x03\x0a\x01x", b"\x0a\x02\x08\x02", b""]
    batch = decoded(tmp_path, {}, values, format="protobuf", **options)
    rows = [{"number": 1, "shop": {"name": "x"}}, {"number": 2, "shop": None}]
    assert batch.rows.to_pylist() == rows
    assert dead(batch) == [(2, "schema", "missing")]


def test_names_with_dots_and_aliases(tmp_path: Path) -> None:
    """A path may be a list of names; the first name with a value counts."""
    metadata = {"path": ["x.y", "number"], "aliases": ["n", "no"]}
    values = [b'{"x.y":{"number":1,"n":2}}', b'{"x.y":{"no":3,"n":null}}', b'{"x":{"y":{"no":3}}}']
    batch = decoded(tmp_path, metadata, values, format="json")
    assert batch.rows["number"].to_pylist() == [1, 3]
    assert dead(batch) == [(2, "schema", "missing")]


@pytest.mark.parametrize(
    ("metadata", "decode", "message"),
    [
        ({"path": "a"}, {"format": "json"}, r"takes \$.a and \$.a.shop of a message"),
        ({"path": "a.shop"}, {"format": "json"}, r"takes \$.a.shop and \$.a.shop of a message"),
        ({}, {"format": "canal-json"}, "gives path or codecs for shop, which"),
        ({}, {"format": "json-schema-confluent"}, "gives path or codecs for shop"),
        ({"default": 1}, {"format": "json", "root": "a"}, "gives default for number"),
    ],
)
def test_paths_that_are_refused(
    tmp_path: Path, metadata: dict[str, Any], decode: dict[str, Any], message: str
) -> None:
    """A field becomes one column; a path that a format would ignore is refused."""
    with pytest.raises(SpecError, match=message):
        decoded(tmp_path, metadata, [], **decode)


@pytest.mark.parametrize("unknown", ["ignore", "dead"])
def test_fields_beside_the_root(tmp_path: Path, unknown: str) -> None:
    """Fields without a column are counted, or refuse their message, in the row alone."""
    rows = [b'"number":1', b'"number":1,"c":1', b'"number":1,"shop":{"c":1}']
    values = [b'{"b":1,"a":{%s}}' % row for row in rows]
    batch = decoded(tmp_path, {}, values, format="json", root="a", unknown=unknown)
    unknown_ones = batch.ignoring.tolist() if unknown == "ignore" else batch.dead_index.to_pylist()
    assert unknown_ones == [1, 2]
    assert batch.rows.num_rows == (3 if unknown == "ignore" else 1)
