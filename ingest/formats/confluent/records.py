"""Which records are rows, where a topic has several: by their names, as in Avro's resolution.

Of Protobuf, messages are meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder

WrittenWith = Literal["schema_id", "record"]
"""What a column may say of the schema that a message was written with."""

_PIECES = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}]|\bmessage\s+(\w+)""",
    re.DOTALL,
)
"""What tells where a .proto file's own messages are: comments, texts and braces are
passed over, or counted.
"""


@dataclass(frozen=True)
class RecordMachine:
    """What decodes messages of a record, and its full name; an empty one if they are none."""

    machine: BatchDecoder
    record: str


@dataclass(frozen=True)
class OtherRecord:
    """A record that no row is made of, by its full name."""

    name: str


@dataclass(frozen=True)
class OneOfSeveral:
    """A union of so many records: which one a message is, stands before it."""

    count: int


def record_of_subjects(
    subjects: Mapping[str, Sequence[frozenset[str]]], setting: str
) -> tuple[str, ...]:
    """The names, without namespaces, of the record that each subject is of.

    Args:
        subjects: for each the names that each record has which it holds, in any of its versions.
        setting: the one that says it where they don't, for people.

    Raises:
        SpecError: there is no such subject, or it holds records that have no name in common.
    """
    expected: dict[str, None] = {}
    for subject, records in subjects.items():
        if not records:
            what = (
                f"The schema registry has no subject {subject} that says of which record the"
                " messages are"
            )
            raise SpecError(
                what,
                "decode",
                f"Say {setting}: [NAME], with the names of the records that are rows. Nothing was"
                " read.",
            )
        common = frozenset.intersection(*records)
        if not common:
            told = ", ".join(sorted({min(names) or "no record" for names in records})[:10])
            what = f"Subject {subject} of the schema registry holds several records: {told}"
            raise SpecError(
                what,
                "decode",
                f"Say {setting}: [NAME], with the names of those that are rows. Nothing was read.",
            )
        expected.update(dict.fromkeys(sorted(common)))
    return tuple(expected)


def messages_in(proto: str) -> list[str]:
    """The names of the messages of a .proto file that are in no other message, without
    its package.
    """
    found, depth = [], 0
    for piece in _PIECES.finditer(proto):
        depth += {"{": 1, "}": -1}.get(piece[0], 0)
        if piece[1] and depth == 0:
            found.append(piece[1])
    return found
