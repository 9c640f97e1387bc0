"""The compiled pass and the strict decoder agree about each message.

Changes have the same effect on a table as a simple interpretation of them.
"""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.cdc.formats import decoder_of
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder, Taken
from windrow.ingest.ports.decoder import Decoded, Decoder
from windrow.ingest.testing.contracts.values import (
    check_shape,
    dead,
    deleted,
    messages_with,
    verdicts,
)

NAMES = ("debezium-json", "canal-json", "maxwell-json")
GROWING = {name: decoder_of(name, "Part") for name in NAMES}
KEYED = {name: decoder_of(name, "Part", primary_key=("id", "part")) for name in NAMES}

_SCALARS = (
    st.none()
    | st.integers(0, 3)
    | st.sampled_from(["a", "b", "1", "2.0", "\\", "é"])
    | st.booleans()
    | st.floats(0, 3)
)
_ROWS = st.dictionaries(st.sampled_from(["id", "part", "name", "more"]), _SCALARS, max_size=4)
_IMAGES = st.none() | _ROWS | _SCALARS | st.lists(st.none() | _ROWS, max_size=3)
_WORDS = st.sampled_from(
    [
        *"crudtm",
        "INSERT",
        "UPDATE",
        "DELETE",
        "TRUNCATE",
        "QUERY",
        "insert",
        "update",
        "delete",
        "bootstrap-start",
    ]
)
_ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "op": _WORDS | _SCALARS,
        "type": _WORDS | _SCALARS,
        "before": _IMAGES,
        "after": _IMAGES,
        "data": _IMAGES,
        "old": _IMAGES,
        "isDdl": st.sampled_from([False, False, True, None, 1]),
        "source": _IMAGES,
    },
)
_VALUES = (
    st.none()
    | st.binary(max_size=8)
    | _ENVELOPES.map(lambda document: json.dumps(document).encode())
)


def decoded(decoder: Decoder, values: list[bytes | None]) -> Decoded:
    """Decodes messages and checks the shape of the result."""
    batch = decoder.open()(messages_with(values))
    check_shape(batch, decoder.columns.arrow_schema, len(values))
    return batch


def slowly(decoder: Decoder, values: list[bytes | None]) -> Decoded:
    """Decodes messages with the strict decoder only: the compiled pass takes nothing."""

    def nothing(machine: BatchDecoder, messages: pa.BinaryArray) -> Taken:
        return Taken(
            np.zeros(len(messages), np.bool_), [pa.array([], f.type) for f in machine.schema]
        )

    with mock.patch.object(BatchDecoder, "decode_fast", nothing):
        return decoded(decoder, values)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("decoders", [GROWING, KEYED], ids=["growing", "keyed"])
@given(values=st.lists(_VALUES, max_size=12))
def test_both_ways_say_the_same(
    name: str, decoders: dict[str, Decoder], values: list[bytes | None]
) -> None:
    """Both decoders give the same rows, deletes, counts and reasons for any envelope."""
    fast, slow = decoded(decoders[name], values), slowly(decoders[name], values)
    assert verdicts(fast) == verdicts(slow)
    assert (fast.dropped, fast.filtered) == (slow.dropped, slow.filtered)


# --------------------------------------------------------------------------------------------------

_KEYS = st.tuples(st.integers(0, 2), st.sampled_from(["a", "b"]))
_CHANGES = st.lists(
    st.lists(
        st.tuples(_KEYS, st.none() | _KEYS, st.sampled_from(["x", "y", None]), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    max_size=12,
)
"""Messages of changes: the key, the old key or None, a name, and whether it is a deletion.

The first change of a message says whether all its changes are deletions.
"""


def row(key: tuple[int, str], name: str | None) -> dict[str, Any]:
    """Returns a row as a tool writes it."""
    return {"id": key[0], "part": key[1], "name": name}


def messages(name: str, changes: list[list[tuple[Any, ...]]]) -> list[list[tuple[Any, ...]]]:
    """Returns the changes as the tool's messages.

    Only Canal puts several changes into one message.
    """
    return (
        changes if name == "canal-json" else [[change] for message in changes for change in message]
    )


def written(name: str, message: list[tuple[Any, ...]]) -> bytes:
    """Returns a message in the tool's envelope."""
    key, former_key, text, is_delete = message[0]
    if name == "debezium-json":
        images = (
            {"before": row(key, text)}
            if is_delete
            else {"before": former_key and row(former_key, text), "after": row(key, text)}
        )
        return json.dumps(
            {**images, "op": "d" if is_delete else "u" if former_key else "c"}
        ).encode()
    former = [
        former_key and {"part": former_key[1], "id": former_key[0]}
        for _, former_key, _, _ in message
    ]
    if name == "maxwell-json":
        kind = "delete" if is_delete else "update" if former_key else "insert"
        return json.dumps({"type": kind, "data": row(key, text), "old": former[0]}).encode()
    kind, data = (
        "DELETE" if is_delete else "UPDATE",
        [row(key, text) for key, _, text, _ in message],
    )
    return json.dumps({"type": kind, "data": data, "old": None if is_delete else former}).encode()


def read_plainly(message: list[tuple[Any, ...]], table: dict[Any, Any]) -> None:
    """Applies a message to a table: first the deletes, then the rows."""
    is_delete = message[0][3]
    for key, former_key, _, _ in message:
        table.pop(
            key if is_delete else former_key if former_key and former_key != key else None, None
        )
    if not is_delete:
        table.update({key: text for key, _, text, _ in message})


@pytest.mark.parametrize("name", NAMES)
@given(changes=_CHANGES)
def test_changes_do_to_a_table_what_they_say(
    name: str, changes: list[list[tuple[Any, ...]]]
) -> None:
    """Deletes and rows leave the same table as a simple interpretation of the changes.

    The changes are inserts, updates, deletions and changes of keys.
    """
    sent_messages, plainly, table = messages(name, changes), {}, {}  # type: ignore[var-annotated]
    batch = decoded(KEYED[name], [written(name, message) for message in sent_messages])
    assert dead(batch) == []
    for number, message in enumerate(sent_messages):
        read_plainly(message, plainly)
        for index, key in deleted(batch):
            if index == number:
                table.pop(tuple(key.values()), None)
        for index, table_row in zip(
            batch.row_index.to_pylist(), batch.rows.to_pylist(), strict=True
        ):
            if index == number:
                table[table_row["id"], table_row["part"]] = table_row["name"]
    assert table == plainly
