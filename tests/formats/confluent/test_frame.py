"""The schema that a message names is the same as confluent-kafka reads, for any bytes.

It reads all frames except those of AWS Glue.
"""

from __future__ import annotations

import io
import struct
import uuid

import msgspec
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import SerializationError
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.formats.confluent.frame import MOST_STEPS, NAMELESS, NULL, Frame, frames_of
from windrow.ingest.testing.contracts.values import messages_with

GUID = uuid.UUID(int=7)
IDS = st.sampled_from([0, 1, 2, 256, (1 << 32) - 1])
FRAMED = st.builds(lambda id_, rest: struct.pack(">bI", 0, id_) + rest, IDS, st.binary(max_size=8))
BY_GUID = st.builds(
    lambda low, rest: b"\x01" + uuid.UUID(int=low).bytes + rest,
    st.integers(0, 2),
    st.binary(max_size=8),
)
OF_GLUE = st.builds(
    lambda form, version, rest: bytes([3, form]) + version.bytes + rest,
    st.sampled_from([0, 5, 7]),
    st.sampled_from([GUID, uuid.UUID(int=7 << 120)]),
    st.binary(max_size=2),
)
VALUES = st.none() | st.binary(max_size=20) | FRAMED | BY_GUID | OF_GLUE
HEADERS = st.lists(
    st.tuples(st.sampled_from(["__value_schema_id", "__key_schema_id"]), VALUES), max_size=2
)


def reference(octets: bytes, *, paths: bool) -> Frame | None:
    """Returns the frame that confluent-kafka reads.

    It is None if confluent-kafka fails, or if its result is nothing that a serializer writes.
    """
    schema_id = SchemaId("PROTOBUF" if paths else "AVRO")
    try:
        payload = schema_id.from_bytes(io.BytesIO(octets))
    except (struct.error, SerializationError, EOFError, ValueError):
        return None
    path = tuple(schema_id.message_indexes or ())
    if len(path) > MOST_STEPS or any(not 0 <= step < 1 << 31 for step in path):
        return None
    return Frame(
        str(schema_id.id if schema_id.guid is None else schema_id.guid), payload.tell(), path
    )


@given(st.lists(st.tuples(VALUES, HEADERS), max_size=12), st.booleans())
def test_frames_are_what_the_client_reads(
    messages: list[tuple[bytes | None, list[tuple[str, bytes | None]]]], paths: bool
) -> None:
    """The last header with the schema's id counts before the value. Each message is read alone."""
    values, headers = [value for value, _ in messages], [headers for _, headers in messages]
    frames = frames_of(messages_with(values, None, headers), "__value_schema_id", paths=paths)
    assert len(set(frames.frames)) == len(frames.frames)
    for (value, message_headers), number in zip(messages, frames.numbers.tolist(), strict=True):
        header = dict(message_headers).get("__value_schema_id")
        if value is None:
            assert number == NULL
            continue
        expected_frame = reference(value if header is None else header, paths=paths)
        if header is None and not paths and len(value) >= 18 and value[:2] in {b"\3\0", b"\3\5"}:
            expected_frame = Frame(f"glue-{uuid.UUID(bytes=value[2:18])}", 18)
        if expected_frame is not None and header is not None:
            expected_frame = msgspec.structs.replace(expected_frame, skip=0)
        assert (None if number == NAMELESS else frames.frames[number]) == expected_frame


@pytest.mark.parametrize(
    "octets",
    [
        b"\x00\x00\x00\x00\x01",
        b"\x00\x00\x00\x00\x01\x80\x80\x80\x80\x80\x80",
        b"\x00\x00\x00\x00\x01\x01",
    ],
)
def test_paths_that_are_none(octets: bytes) -> None:
    """A message with a truncated, too long or negative path names no schema."""
    assert frames_of(messages_with([octets]), "h", paths=True).numbers.tolist() == [NAMELESS]


def test_a_part_of_a_batch() -> None:
    """A slice of a batch gives the same frames as the messages alone."""
    values = [b"x", None, b"\x00\x00\x00\x00\x07a", b"\x01" + GUID.bytes + b"b", b""]
    frames = frames_of(messages_with(values).slice(1, 3), "h", paths=False)
    assert frames.numbers.tolist() == [NULL, 0, 1]
    assert frames.frames == [Frame("7", 5), Frame(str(GUID), 17)]
