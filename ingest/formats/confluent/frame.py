"""Frames of messages: the schema that each message names, and where its payload begins.

A frame is the value of a header if the message has that header, else the beginning of the
message's value. It has the schema's id: a byte 0 and a number of four bytes, or a byte 1 and a
GUID of 16 bytes. For Protobuf a path follows: the number of a message in the schema, then the
number of a message inside that message, and so on.

The frame of AWS Glue is a byte 3, a byte that says whether the payload is compressed, and the
UUID of the schema's version. It has no path, and is never in a header.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.formats.shared.codecs import open_codecs
from windrow.ingest.model.writer_schema import GLUE
from windrow.ingest.schema.messages import last_values

NULL, NAMELESS = -1, -2
"""Replacements for a frame's number: the message has no value, or it names no schema."""
MOST_STEPS = 50
"""Limit of the steps of a path; Protobuf messages aren't nested this deep."""

_NUMBER_END, _GUID_END, _GLUE_END = 5, 17, 18
"""The length in bytes of a frame with a number, with a GUID and of AWS Glue, without a path."""
_GLUE, _PLAIN, _COMPRESSED = 3, 0, 5
"""The first byte of AWS Glue's frame, and the second one by the form of the payload."""


class Frame(msgspec.Struct, frozen=True):
    """Frame of messages.

    Attributes:
        id: the schema's id, a number or a GUID.
        skip: the number of the value's bytes before the payload.
        path: the path to the message in the schema. For a message of a union of records, it
            is the number of the record.
    """

    id: str
    skip: int
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class Frames:
    """Frames of a batch's messages.

    Attributes:
        frames: the different frames.
        numbers: for each message the index of its frame in `frames`, or `NULL` or
            `NAMELESS`.
        has_compressed: whether a payload is compressed, as only AWS Glue's frames can say.
    """

    frames: list[Frame]
    numbers: npt.NDArray[np.int64]
    has_compressed: bool


def frames_of(messages: pa.RecordBatch, header: str, *, paths: bool) -> Frames:
    """Reads the frames of messages.

    Args:
        messages: the messages.
        header: the name of the header that may have the frame.
        paths: whether frames have a path.
    """
    values = messages.column("value")
    number_by_frame: dict[Frame, int] = {}
    numbers = np.full(len(values), NAMELESS, np.int64)
    numbers[values.is_null().to_numpy(zero_copy_only=False)] = NULL
    in_header = last_values(messages.column("headers"), header)
    has_header = in_header.is_valid().to_numpy(zero_copy_only=False) & (numbers != NULL)
    for i in np.flatnonzero(has_header).tolist():
        frame = _frame(in_header[i].as_py(), paths=paths)
        if frame is not None:
            numbers[i] = number_by_frame.setdefault(
                msgspec.structs.replace(frame, skip=0), len(number_by_frame)
            )
    data, begins, ends = octets_of(values)
    sizes = ends - begins
    first = (
        np.where(sizes > 0, data[np.minimum(begins, len(data) - 1)], 255)
        if len(data)
        else np.full(len(values), 255)
    )
    open_ = (numbers == NAMELESS) & ~has_header
    numbered = np.flatnonzero(open_ & (first == 0) & (sizes >= _NUMBER_END))
    number_begins = begins[numbered]
    ids = np.zeros(len(numbered), np.uint32)
    for byte in range(1, _NUMBER_END):
        ids = ids << np.uint32(8) | data[number_begins + byte]
    if paths:  # Nearly all messages have the path to the schema's first message, a byte 0.
        first_one = (sizes[numbered] > _NUMBER_END) & (
            data[np.minimum(number_begins + _NUMBER_END, len(data) - 1)] == 0
        )
        _number(
            ids[first_one],
            numbered[first_one],
            numbers,
            number_by_frame,
            lambda id_: Frame(str(id_), _NUMBER_END + 1, (0,)),
        )
        slow_rows = numbered[~first_one]
    else:
        _number(ids, numbered, numbers, number_by_frame, lambda id_: Frame(str(id_), _NUMBER_END))
        slow_rows = numbered[:0]
    glue_rows = np.flatnonzero(open_ & (first == _GLUE) & (sizes >= _GLUE_END) & (not paths))
    heads = data[begins[glue_rows][:, None] + np.arange(_GLUE_END)]
    is_known = (heads[:, 1] == _PLAIN) | (heads[:, 1] == _COMPRESSED)
    glue_rows, heads = glue_rows[is_known], heads[is_known]
    versions = np.ascontiguousarray(heads[:, 2:]).view("S16").ravel()
    _number(versions, glue_rows, numbers, number_by_frame, _glue_frame)
    for i in [
        *slow_rows.tolist(),
        *np.flatnonzero(open_ & (first == 1) & (sizes >= _GUID_END)).tolist(),
    ]:
        head = data[
            begins[i] : min(begins[i] + _GUID_END + 10 * (MOST_STEPS + 1), ends[i])
        ].tobytes()
        frame = _frame(head, paths=paths)
        if frame is not None:
            numbers[i] = number_by_frame.setdefault(frame, len(number_by_frame))
    return Frames(list(number_by_frame), numbers, bool((heads[:, 1] == _COMPRESSED).any()))


def _glue_frame(version: bytes) -> Frame:
    """Returns the frame of a UUID's bytes, which numpy gives without the zeros at their end."""
    return Frame(f"{GLUE}{uuid.UUID(bytes=version.ljust(16, bytes(1)))}", _GLUE_END)


def open_frame(value: bytes) -> bytes:
    """Returns a value with its payload decompressed, if it has a frame of AWS Glue that says so.

    Raises:
        RefusedValueError: the payload isn't compressed, or is too large.
    """
    if value[:2] != bytes([_GLUE, _COMPRESSED]) or len(value) < _GLUE_END:
        return value
    payload = open_codecs(value[_GLUE_END:], ("deflate",))
    return bytes([_GLUE, _PLAIN]) + value[2:_GLUE_END] + payload


def branches_of(
    values: pa.BinaryArray, skip: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Reads the number of a union's type in each value, after `skip` bytes.

    Returns:
        The numbers, -1 for a value without a number; and the length in bytes of each
        number.
    """
    data, begins, ends = octets_of(values, skip)
    numbers, sizes = np.full(len(values), -1, np.int64), np.ones(len(values), np.int64)
    not_empty = np.flatnonzero(begins < ends)
    first = data[begins[not_empty]].astype(np.int64)
    numbers[not_empty] = np.where(first < 128, first >> 1 ^ -(first & 1), -1)
    for i in not_empty[first >= 128].tolist():
        number, end = _varint(data[begins[i] : min(begins[i] + 5, ends[i])].tobytes(), 0)
        if end > 0:
            numbers[i], sizes[i] = number, end
    return numbers, sizes


def schema_ids(messages: pa.RecordBatch, header: str, *, paths: bool) -> pa.StringArray:
    """Returns the id of the schema that each message names, or null if it names none.

    The arguments are those of `frames_of`.
    """
    framed = frames_of(messages, header, paths=paths)
    ids = pa.array([frame.id for frame in framed.frames], pa.string())
    return ids.take(pa.array(framed.numbers, mask=framed.numbers < 0))


def _number(
    ids: npt.NDArray[Any],
    rows: npt.NDArray[np.intp],
    numbers: npt.NDArray[np.int64],
    number_by_frame: dict[Frame, int],
    make: Callable[[Any], Frame],
) -> None:
    """Sets the frame numbers of some messages, by their schema ids.

    Args:
        ids: the schema id of each of these messages.
        rows: the row number of each of these messages.
        numbers: the frame numbers of all messages; written.
        number_by_frame: the frames so far; written.
        make: makes the frame of a schema id.
    """
    if len(ids) and (ids == ids[0]).all():
        numbers[rows] = number_by_frame.setdefault(make(ids[0].item()), len(number_by_frame))
        return
    distinct_ids, index_of_id = np.unique(ids, return_inverse=True)
    frame_numbers = np.array(
        [
            number_by_frame.setdefault(make(id_), len(number_by_frame))
            for id_ in distinct_ids.tolist()
        ],
        np.int64,
    )
    numbers[rows] = frame_numbers[index_of_id]


def _frame(octets: bytes, *, paths: bool) -> Frame | None:
    """Reads the frame at the beginning of some bytes; returns None if there is no frame."""
    if octets[:1] == b"\x00" and len(octets) >= _NUMBER_END:
        id_, pos = str(int.from_bytes(octets[1:_NUMBER_END], "big")), _NUMBER_END
    elif octets[:1] == b"\x01" and len(octets) >= _GUID_END:
        id_, pos = str(uuid.UUID(bytes=octets[1:_GUID_END])), _GUID_END
    else:
        return None
    if not paths:
        return Frame(id_, pos)
    count, pos = _varint(octets, pos)
    if pos < 0 or not 0 <= count <= MOST_STEPS:
        return None
    path: list[int] = []
    for _ in range(count):
        step, pos = _varint(octets, pos)
        if pos < 0 or step < 0:
            return None
        path.append(step)
    return Frame(id_, pos, tuple(path) or (0,))


def _varint(octets: bytes, pos: int) -> tuple[int, int]:
    """Reads a zigzag number of at most 5 bytes.

    Returns:
        The number; and the index after it, or -1 if there is no number.
    """
    number = 0
    for i, byte in enumerate(octets[pos : pos + 5] if pos >= 0 else b""):
        number |= (byte & 127) << 7 * i
        if byte < 128:
            return (number >> 1) ^ -(number & 1), pos + i + 1
    return 0, -1
