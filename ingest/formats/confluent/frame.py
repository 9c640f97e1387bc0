"""Which schema each message of a batch names, and where its payload begins.

The name is a header's value, where there is such a header, or the beginning of the
message: a byte 0 and a number of four bytes, or a byte 1 and a GUID of sixteen.
Protobuf's is followed by a path: which message of the schema it is, then which message
in that, and so on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.shared.buffers import last_values, octets_of

NULL, NAMELESS = -1, -2
"""What stands in the place of a frame's number for a message without a value, and for
one that names no schema.
"""
MOST_STEPS = 50
"""Of a path: so deep nobody nests messages."""

_NUMBER_END, _GUID_END = 5, 17


class Frame(NamedTuple):
    """What messages begin with: the schema's id, how many bytes lie before the payload,
    and the path.
    """

    id: str
    skip: int
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class Frames:
    """The frames of a batch's messages.

    `numbers`: of each message its frame's place in `frames`, or `NULL` or `NAMELESS`.
    """

    frames: list[Frame]
    numbers: npt.NDArray[np.int64]


def frames_of(messages: pa.RecordBatch, header: str, *, paths: bool) -> Frames:
    """Of messages whose values are framed, or that have the frame in a header of this name.

    `paths`: whether a path belongs to it.
    """
    values = messages.column("value")
    known: dict[Frame, int] = {}
    numbers = np.full(len(values), NAMELESS, np.int64)
    numbers[values.is_null().to_numpy(zero_copy_only=False)] = NULL
    beside = last_values(messages.column("headers"), header)
    named = beside.is_valid().to_numpy(zero_copy_only=False) & (numbers != NULL)
    for i in np.flatnonzero(named).tolist():
        frame = _frame(beside[i].as_py(), paths=paths)
        if frame is not None:
            numbers[i] = known.setdefault(frame._replace(skip=0), len(known))
    data, begins, ends = octets_of(values)
    sizes = ends - begins
    first = (
        np.where(sizes > 0, data[np.minimum(begins, len(data) - 1)], 255)
        if len(data)
        else np.full(len(values), 255)
    )
    open_ = (numbers == NAMELESS) & ~named
    numbered = np.flatnonzero(open_ & (first == 0) & (sizes >= _NUMBER_END))
    at = begins[numbered]
    ids = np.zeros(len(numbered), np.uint32)
    for place in range(1, _NUMBER_END):
        ids = ids << np.uint32(8) | data[at + place]
    if paths:  # of nearly all messages it is the schema's first one, which is a byte 0
        first_one = (sizes[numbered] > _NUMBER_END) & (
            data[np.minimum(at + _NUMBER_END, len(data) - 1)] == 0
        )
        _number(
            ids[first_one],
            numbered[first_one],
            numbers,
            known,
            lambda id_: Frame(id_, _NUMBER_END + 1, (0,)),
        )
        slow = numbered[~first_one]
    else:
        _number(ids, numbered, numbers, known, lambda id_: Frame(id_, _NUMBER_END))
        slow = numbered[:0]
    for i in [
        *slow.tolist(),
        *np.flatnonzero(open_ & (first == 1) & (sizes >= _GUID_END)).tolist(),
    ]:
        head = data[
            begins[i] : min(begins[i] + _GUID_END + 10 * (MOST_STEPS + 1), ends[i])
        ].tobytes()
        frame = _frame(head, paths=paths)
        if frame is not None:
            numbers[i] = known.setdefault(frame, len(known))
    return Frames(list(known), numbers)


def branches_of(
    values: pa.BinaryArray, skip: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which type of a union each value is, by the number behind so many bytes, -1 if
    there is none; and how many bytes that has.
    """
    data, begins, ends = octets_of(values, skip)
    numbers, sizes = np.full(len(values), -1, np.int64), np.ones(len(values), np.int64)
    there = np.flatnonzero(begins < ends)
    first = data[begins[there]].astype(np.int64)
    numbers[there] = np.where(first < 128, first >> 1 ^ -(first & 1), -1)
    for i in there[first >= 128].tolist():
        number, end = _varint(data[begins[i] : min(begins[i] + 5, ends[i])].tobytes(), 0)
        if end > 0:
            numbers[i], sizes[i] = number, end
    return numbers, sizes


def schema_ids(messages: pa.RecordBatch, header: str, *, paths: bool) -> pa.StringArray:
    """The id of the schema that each message names, null where it names none; the
    arguments are those of `frames_of`.
    """
    found = frames_of(messages, header, paths=paths)
    ids = pa.array([frame.id for frame in found.frames], pa.string())
    return ids.take(pa.array(found.numbers, mask=found.numbers < 0))


def _number(
    ids: npt.NDArray[np.uint32],
    places: npt.NDArray[np.intp],
    numbers: npt.NDArray[np.int64],
    known: dict[Frame, int],
    make: Callable[[str], Frame],
) -> None:
    """Give each message at some places its frame's number, by its id."""
    if len(ids) and (ids == ids[0]).all():
        numbers[places] = known.setdefault(make(str(ids[0])), len(known))
        return
    distinct, which = np.unique(ids, return_inverse=True)
    of = np.array(
        [known.setdefault(make(str(id_)), len(known)) for id_ in distinct.tolist()], np.int64
    )
    numbers[places] = of[which]


def _frame(octets: bytes, *, paths: bool) -> Frame | None:
    """The frame at the beginning of some bytes."""
    if octets[:1] == b"\x00" and len(octets) >= _NUMBER_END:
        id_, at = str(int.from_bytes(octets[1:_NUMBER_END], "big")), _NUMBER_END
    elif octets[:1] == b"\x01" and len(octets) >= _GUID_END:
        id_, at = str(uuid.UUID(bytes=octets[1:_GUID_END])), _GUID_END
    else:
        return None
    if not paths:
        return Frame(id_, at)
    count, at = _varint(octets, at)
    if at < 0 or not 0 <= count <= MOST_STEPS:
        return None
    path: list[int] = []
    for _ in range(count):
        step, at = _varint(octets, at)
        if at < 0 or step < 0:
            return None
        path.append(step)
    return Frame(id_, at, tuple(path) or (0,))


def _varint(octets: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of at most 5 bytes, and where it ends, or -1."""
    number = 0
    for i, byte in enumerate(octets[at : at + 5] if at >= 0 else b""):
        number |= (byte & 127) << 7 * i
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at + i + 1
    return 0, -1
