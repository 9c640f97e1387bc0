"""Names of the records that are rows, for topics with messages of several records.

A record is an Avro record, or a top-level message of a Protobuf schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.ports.decoder import Decoded

WrittenWith = Literal["schema_id", "record"]
"""Property of the writer's schema that a column may get: its id, or its record's full name."""

_PIECES = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}]|\bmessage\s+(\w+)""",
    re.DOTALL,
)
"""Parts of a .proto file by which its top-level messages are found.

Comments and strings are matched so that they are skipped. Braces are counted.
"""


DecodeFrame = Callable[[pa.BinaryArray, pa.RecordBatch, npt.NDArray[np.int64]], Decoded]
"""Gives the verdict on messages with one frame.

It is called with their values, the whole batch, and the numbers of these messages in the batch.
"""


@dataclass(frozen=True)
class RecordDecoder:
    """Decoder of messages of a record.

    Attributes:
        decode: decodes the messages.
        record: the record's full name; "" if it has no name.
    """

    decode: DecodeFrame
    record: str

    @classmethod
    def of_rows(cls, decoder: BatchDecoder, record: str) -> RecordDecoder:
        """Returns the decoder of messages that are rows."""
        return cls(lambda values, _messages, _rows: decoder.decode(values, "dead"), record)


class OtherRecord(msgspec.Struct, frozen=True):
    """Record whose messages aren't rows.

    Attributes:
        name: the record's full name.
    """

    name: str


class OneOfSeveral(msgspec.Struct, frozen=True):
    """Union of several types. Each message begins with the number of its type.

    Attributes:
        count: the number of types.
    """

    count: int


def record_of_subjects(
    subjects: Mapping[str, Sequence[frozenset[str]]], setting: str
) -> tuple[str, ...]:
    """Returns the names, without namespaces, that all records of each subject share.

    Args:
        subjects: for each subject, a set of names for each record of its versions.
        setting: the setting that can name the records instead, for errors.

    Raises:
        SpecError: a subject doesn't exist, or its records have no name in common.
    """
    common_names: dict[str, None] = {}
    for subject, records in subjects.items():
        if not records:
            raise SpecError(
                f"The schema registry has no subject {subject}, so it isn't known which record is"
                " the rows'",
                "decode",
                f"Set {setting}: [NAME], with the names of the records that are rows. Nothing was"
                " read.",
            )
        common = frozenset.intersection(*records)
        if not common:
            several = ", ".join(sorted({min(names) or "no record" for names in records})[:10])
            raise SpecError(
                f"Subject {subject} of the schema registry has several records: {several}",
                "decode",
                f"Set {setting}: [NAME], with the names of those that are rows. Nothing was read.",
            )
        common_names.update(dict.fromkeys(sorted(common)))
    return tuple(common_names)


def messages_in(proto: str) -> list[str]:
    """Returns the names of the top-level messages of a .proto file, without its package."""
    names, depth = [], 0
    for piece in _PIECES.finditer(proto):
        depth += {"{": 1, "}": -1}.get(piece[0], 0)
        if piece[1] and depth == 0:
            names.append(piece[1])
    return names
