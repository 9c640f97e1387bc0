"""Values and fields in codecs, and values of several documents."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, get_args

import pyarrow as pa
import pytest

from tests.contracts.decoder_contract import DecoderContract
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.codec_decoder import CodecDecoder
from windrow.ingest.formats.json.kind import JsonSection
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.formats.shared.codecs import FREE, MOST, SHARE, open_codecs
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.schema.message_fields import Codec
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.source.reader.reader import BYTES_MAX, ROWS_MAX
from windrow.ingest.testing.contracts.values import dead, messages_with, verdicts

MODELS = Path(__file__).parent / "json"
SCALARS = "models.py:Scalars"


def zstd(value: bytes) -> bytes:
    """Returns a value in zstd."""
    return bytes(pa.compress(value, codec="zstd", asbytes=True))


WRAP: dict[Codec, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate-raw": lambda value: zlib.compress(value)[2:-4],
    "zstd": zstd,
    "base64": base64.b64encode,
    "json": lambda value: json.dumps(value.decode("latin-1")).encode(),
}
COMPRESSED: list[Codec] = ["gzip", "deflate", "deflate-raw", "zstd"]


def json_decoder(**decode: Any) -> Decoder:
    """Returns a decoder of JSON with these settings."""
    return make_decoder(JsonSection.model_validate({"schema": SCALARS, **decode}), MODELS)


class TestCodecs(DecoderContract):
    """Values in codecs fulfil the contract of every format."""

    GOOD: ClassVar = [zstd(b'{"id":1}'), zstd(b'{"id":2,"name":"x","more":[{}]}')]
    BAD: ClassVar = [zstd(b'{"id":"hunter2"}'), b"hunter2", zstd(b'{"id":1}') + b"hunter2"]

    @pytest.fixture
    def decoder(self) -> Decoder:
        return json_decoder(codecs=["zstd"])


class TestDocuments(DecoderContract):
    """Values of several documents fulfil the contract of every format."""

    GOOD: ClassVar = [b'[{"id":1}]', b' [ {"id":2,"more":[{}]}, {"id":3,"more":1} ] ']
    BAD: ClassVar = [
        b'[{"id":1},{"id":"hunter2"}]',
        b"hunter2",
        b'[{"id":"hunter2"}',
        b'[{"hunter2":1}]',
    ]

    @pytest.fixture
    def decoder(self) -> Decoder:
        return json_decoder(rows="array")


def test_every_codec_is_tried() -> None:
    """The tests have each codec."""
    assert {*WRAP} == {*get_args(Codec)}


@pytest.mark.parametrize("codec", WRAP)
def test_what_is_in_a_codec(codec: Codec) -> None:
    """A value has the bytes that were put in; a cut value and one of another kind are refused."""
    value = WRAP[codec](b"a value")
    assert open_codecs(value, [codec]) == b"a value"
    assert open_codecs(WRAP["base64"](value), ["base64", codec]) == b"a value"
    for broken in (value[:-1], value + b"}", b"{}", b'"\\ud800"'):
        with pytest.raises(RefusedValueError) as refusal:
            open_codecs(broken, [codec])
        assert refusal.value.reason == f"not_{codec.replace('-', '_')}"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bombs(codec: Codec) -> None:
    """A value that unpacks to more than its bound is refused; one up to the bound is opened.

    The bound is for all codecs together.
    """
    wrap, bomb = WRAP[codec], WRAP[codec](bytes(64 << 20))
    with pytest.raises(RefusedValueError, match="too_large"):
        open_codecs(bomb, [codec])
    with pytest.raises(RefusedValueError, match="too_large"):
        open_codecs(wrap(wrap(bytes(1 << 20))), [codec, codec])
    bound = FREE + SHARE * len(wrap(bytes(FREE)))
    verdicts = set[bool]()
    for size in range(bound - 2 * SHARE, bound + 8 * SHARE):  # one more byte of the value is 32
        value = wrap(bytes(size))
        fits = size <= FREE + SHARE * len(value)
        verdicts.add(fits)
        if fits:
            assert len(open_codecs(value, [codec])) == size
        else:
            with pytest.raises(RefusedValueError, match="too_large"):
                open_codecs(value, [codec])
    assert verdicts == {True, False}


def test_a_batch_of_bombs_fits_into_an_array() -> None:
    """The values of a batch, each opened to its bound, are fewer bytes than an array holds."""
    assert ROWS_MAX * FREE + SHARE * BYTES_MAX + MOST < 2**31


def test_chunks_of_opened_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened values that are decoded in chunks have the same verdicts."""
    values = [WRAP["gzip"](b'{"id":%d,"z":1}' % i) if i % 3 else b"x" for i in range(20)] + [None]
    decoder = json_decoder(codecs=["gzip"])
    whole = decoder.open()(messages_with(values))
    monkeypatch.setattr("windrow.ingest.formats.codec_decoder._CHUNK", 30)
    chunked = decoder.open()(messages_with(values))
    assert verdicts(chunked) == verdicts(whole)
    assert chunked.ignoring.tolist() == whole.ignoring.tolist()
    assert isinstance(decoder, CodecDecoder)


def test_codecs_around_change_events(tmp_path: Path) -> None:
    """Deletes come out of codecs, too."""
    section: Any = section_at(FORMATS["debezium-json"])
    decode = section.model_validate({"schema": SCALARS, "codecs": ["gzip"], "unavailable": "null"})
    decoder = make_decoder(decode, MODELS, ("id",))
    events = [b'{"op":"c","after":{"id":1}}', b'{"op":"d","before":{"id":2}}']
    decoded = decoder.open()(messages_with([gzip.compress(event) for event in events]))
    assert decoded.rows["id"].to_pylist() == [1]
    assert decoded.deletes is not None
    assert decoded.deletes.keys.to_pylist() == [{"id": 2}]


def test_codecs_before_a_frame_are_refused() -> None:
    """The id of a schema stands before the payload, so the formats of a registry have no codecs."""
    section = section_at(FORMATS["json-schema-confluent"])
    conflicts = [*section.conflicts({"schema": SCALARS, "codecs": ["gzip"]})]
    assert [path for path, _ in conflicts] == [("codecs",)]


def test_a_value_is_refused_as_a_whole() -> None:
    """One refused document refuses its message, and the detail says which document it was."""
    values = [b'{"id":1}\n\n{"id":2}\r\n', b'{"id":3}\n{"id":"4"}\n{"id":"5"}', b"\n", None]
    decoded = json_decoder(rows="lines").open()(messages_with(values))
    assert decoded.rows["id"].to_pylist() == [1, 2]
    assert decoded.row_index.to_pylist() == [0, 0]
    assert dead(decoded) == [(1, "schema", "wrong_type"), (3, "value", "tombstone")]
    assert decoded.dead_detail[0].as_py().endswith("$.id, in document 2 of the value")
    assert decoded.filtered == 1


def test_fields_without_a_column_in_several_documents() -> None:
    """A message is counted once, with the fields of all its documents."""
    value = b'[{"id":1,"a":1},{"id":2},{"id":3,"b":1,"a":1}]'
    decoded = json_decoder(rows="array").open()(messages_with([b"[]", value]))
    (ignored,) = decoded.ignored
    assert (ignored.index.tolist(), [*ignored.fields(0)]) == ([1], ["a", "b"])


@pytest.mark.parametrize(
    ("value", "key"),
    [(b"[" + b"{}," * 500_000 + b"{}]", b""), (b"[1" + b",1" * 70 + b"]", bytes(1 << 18))],
    ids=["rows of a few bytes", "a long key"],
)
def test_rows_that_cost_far_more_than_their_message(value: bytes, key: bytes) -> None:
    """Rows may not take much more memory than their message, nor repeat a long key too often."""
    decoded = json_decoder(rows="array").open()(messages_with([value], [key]))
    assert dead(decoded) == [(0, "value", "too_large")]


FIELDS = """\
import pandera.polars as pa
import polars as pl


class Event(pa.DataFrameModel):
    id: pl.Int64
    field: {0} = pa.Field(nullable=True, metadata={1})
"""


def field_decoder(folder: Path, kind: str, codecs: list[str], **decode: Any) -> Decoder:
    """Returns a decoder with a column in codecs."""
    (folder / "schema.py").write_text(FIELDS.format(kind, {"codecs": codecs}))
    section: Any = section_at(FORMATS[decode.get("format", "json")])
    return make_decoder(section.model_validate({"schema": "schema.py:Event", **decode}), folder)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("pl.Int64", "12", 12),
        ("pl.List(pl.Int64)", " [1, 2] ", [1, 2]),
        ("pl.Struct({'a': pl.Int64})", '{"a": 1, "b": {}}', {"a": 1}),
        ("pl.String", '"x"', "x"),
        ("pl.Int64", "null", None),
        ("pl.Struct({'a': pl.Int64})", '{"a": "1"}', "wrong_type"),
        ("pl.Struct({'a': pl.Int64})", '{"a": 1', "not_json"),
        ("pl.Struct({'a': pl.Int64})", '{"a": 1}, "b": {"c": 1}', "unknown_field"),
        ("pl.Struct({'a': pl.Int64})", '{"a": 1}, "field": {"a": 2}', "duplicate_key"),
    ],
)
def test_a_json_text_in_a_field(tmp_path: Path, kind: str, text: str, expected: object) -> None:
    """A JSON text in a field is one document of the column's type, and nothing more."""
    value = json.dumps({"id": 1, "field": text}).encode()
    good = b'{"id":2,"field":null}'
    decoded = field_decoder(tmp_path, kind, ["json"]).open()(messages_with([value, good]))
    if decoded.rows.num_rows == 2:
        assert decoded.rows["field"].to_pylist() == [expected, None]
    else:
        assert dead(decoded) == [(0, "schema", expected)]
        assert decoded.dead_detail[0].as_py().count("$.field") <= 1


def test_texts_and_bytes_in_codecs(tmp_path: Path) -> None:
    """A String takes UTF-8 out of a codec, a Binary takes any bytes."""
    fields = [b"YQ==", b"/w==", b"?", b"YWI="]
    values = [b'{"id":1,"field":"%s"}' % field for field in fields]
    texts = field_decoder(tmp_path, "pl.String", ["base64"]).open()(messages_with(values))
    assert texts.rows["field"].to_pylist() == ["a", "ab"]
    assert dead(texts) == [(1, "schema", "invalid_utf8"), (2, "schema", "not_base64")]
    octets = field_decoder(tmp_path, "pl.Binary", ["base64"]).open()(messages_with(values))
    assert octets.rows["field"].to_pylist() == [b"a", b"\xff", b"ab"]
    no_text = field_decoder(tmp_path, "pl.String", ["base64"]).open()(messages_with(values[2:]))
    assert dead(no_text) == [(0, "schema", "not_base64")]


def test_bytes_of_avro_in_codecs(tmp_path: Path) -> None:
    """Bytes of Avro are opened as a field, and truncated timestamps in them are counted."""
    fields = [{"name": "id", "type": "long"}, {"name": "field", "type": "bytes"}]
    schema = {"type": "record", "name": "E", "fields": fields}
    decoder = field_decoder(
        tmp_path, 'pl.Datetime("us", "UTC")', ["zstd", "json"], format="avro", writer_schema=schema
    )
    text = zstd(b'"2026-01-05T09:00:00.0000001Z"')
    value = b"\x02" + bytes([2 * len(text)]) + text
    decoded = decoder.open()(messages_with([value, b"\x02\x02x"]))
    assert [str(at) for at in decoded.rows["field"].to_pylist()] == ["2026-01-05 09:00:00+00:00"]
    assert (decoded.truncated, dead(decoded)) == (1, [(1, "schema", "not_zstd")])


@pytest.mark.parametrize(
    ("kind", "codecs", "message"),
    [
        ("pl.Int64", ["gzip"], "without json are for String and Binary"),
        ("pl.String", ["json", "gzip"], "json before another codec"),
        ("pl.String", ["rot13"], "metadata codecs must be of gzip, deflate"),
    ],
)
def test_codecs_that_are_refused(
    tmp_path: Path, kind: str, codecs: list[str], message: str
) -> None:
    """Codecs that can't give the column are refused with the spec."""
    with pytest.raises(SpecError, match=message):
        field_decoder(tmp_path, kind, codecs).columns  # noqa: B018


def test_codecs_of_a_headers_column_are_refused(tmp_path: Path) -> None:
    """Codecs in the metadata of a column that comes from a header would be ignored."""
    with pytest.raises(SpecError, match=r"from the header x, for which metadata path, codecs"):
        field_decoder(tmp_path, "pl.String", ["base64"], headers={"field": "x"}).columns  # noqa: B018
