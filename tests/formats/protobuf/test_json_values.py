"""Google's Struct, Value and ListValue, which become JSON texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.onepass import Both
from tests.formats.protobuf import wire
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.protobuf.decoder import ProtobufPass, protobuf_batch_decoder
from windrow.ingest.formats.protobuf.descriptors import descriptor_set, message_type
from windrow.ingest.formats.protobuf.strict import StrictProtobuf
from windrow.ingest.infer.protobuf import candidates_of_type
from windrow.ingest.schema.columns import Column, Columns

PROTO = """\
syntax = "proto3";
package shop;
import "google/protobuf/struct.proto";

message Visit {
  int64 id = 1;
  google.protobuf.Struct payload = 2;
  google.protobuf.Value answer = 3;
  google.protobuf.ListValue path = 4;
  repeated google.protobuf.Value tags = 5;
  map<string, google.protobuf.Value> labels = 6;
}
"""
TYPES = {
    "id": pa.int64(),
    **dict.fromkeys(("payload", "answer", "path"), pa.string()),
    "tags": pa.list_(pa.string()),
    "labels": pa.map_(pa.string(), pa.string()),
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The type `Visit`."""
    file = tmp_path_factory.mktemp("types") / "visit.proto"
    file.write_text(PROTO)
    return message_type(descriptor_set(file), "shop.Visit", file.name)


@pytest.fixture(scope="module")
def decode(visit: Any) -> Callable[[bytes], Any]:
    """A function that decodes a message, into its row or the reason why it is refused.

    The compiled pass takes no message that the library refuses or reads differently.
    """
    columns = Columns(tuple(Column(name, kind, nullable=True) for name, kind in TYPES.items()))
    decoder = protobuf_batch_decoder(visit, columns)
    both = Both(columns, ProtobufPass(visit, columns), StrictProtobuf(visit, columns))

    def decode_message(octets: bytes) -> Any:
        both.compare([octets])
        decoded = decoder.decode(pa.array([octets], pa.binary()), "dead")
        if len(decoded.dead_reason):
            return decoded.dead_reason[0].as_py()
        return decoded.rows.to_pylist()[0]

    return decode_message


def value_of(document: Any) -> Value:
    """Returns a document as Google's library makes a Value of it."""
    holder = ListValue()
    holder.extend([document])
    return holder.values[0]


@given(json_values, st.dictionaries(st.text(max_size=3), json_values, max_size=3))
def test_json_comes_back(
    decode: Callable[[bytes], Any], document: Any, labels: dict[str, Any]
) -> None:
    """The text of each value is the document that Google's library wrote, also in lists, in maps
    and in objects of objects.
    """
    payload, path = Struct(), ListValue()
    payload.update({"a": document, **labels})
    path.extend([document, labels])
    octets = value_of(document).SerializeToString()
    entries = b"".join(
        wire.text(6, wire.text(1, key) + wire.text(2, value_of(label).SerializeToString()))
        for key, label in labels.items()
    )
    row = decode(
        wire.text(2, payload.SerializeToString())
        + wire.text(3, octets)
        + wire.text(4, path.SerializeToString())
        + wire.text(5, octets) * 2
        + entries
    )
    assert json.loads(row["payload"]) == {"a": document, **labels}
    assert json.loads(row["path"]) == [document, labels]
    assert [json.loads(text) for text in (row["answer"], *row["tags"])] == [document] * 3
    assert {key: json.loads(text) for key, text in row["labels"]} == labels


def test_the_text_of_json(decode: Callable[[bytes], Any]) -> None:
    """Keys are in their order and whole numbers are whole; a missing field is null, and a Value of
    null is a text.
    """
    payload = Struct()
    payload.update({"b": 5, "a": [1.5, True, None, "é"], "c": 1e300})
    keys = Struct()
    keys.update(dict.fromkeys("zyxwvutsrqponmlkjihgfedcba"))
    assert list(json.loads(decode(wire.text(2, keys.SerializeToString()))["payload"])) == sorted(
        keys.fields
    )
    row = decode(wire.number(1, 7) + wire.text(2, payload.SerializeToString()))
    assert row["payload"] == '{"a":[1.5,true,null,"é"],"b":5,"c":1e+300}'
    assert (row["id"], row["answer"], row["path"], row["tags"]) == (7, None, None, [])
    assert decode(wire.text(3, value_of(None).SerializeToString()))["answer"] == "null"


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (wire.text(3, b""), "missing"),
        (wire.text(3, wire.text(5, wire.text(1, wire.text(1, "a")))), "missing"),
        (wire.text(3, wire.double(2, math.nan)), "out_of_range"),
        (wire.text(5, wire.double(2, -math.inf)), "out_of_range"),
        (wire.text(3, wire.number(2, 1)), "wrong_type"),
        (wire.text(2, wire.number(7, 1)), "wrong_type"),
        (wire.text(4, wire.text(1, wire.text(6, wire.number(1, 1)))), "wrong_type"),
        (wire.number(3, 1), "wrong_type"),
    ],
)
def test_what_has_no_json(decode: Callable[[bytes], Any], octets: bytes, reason: str) -> None:
    """A message is refused if a part of its JSON is missing, has no JSON, or would be lost."""
    assert decode(octets) == reason


def test_types_of_others_have_their_own_columns(visit: Any) -> None:
    """`infer` proposes a text with its JSON, and other types than text are refused."""
    proposed = {candidate.name: candidate.guess for candidate in candidates_of_type(visit)}
    assert {name: guess.type for name, guess in proposed.items()} == TYPES
    assert proposed["payload"].note == "JSON"
    with pytest.raises(SpecError, match=r"answer: message google\.protobuf\.Value can't become"):
        protobuf_batch_decoder(visit, Columns((Column("answer", pa.int64(), nullable=True),)))
