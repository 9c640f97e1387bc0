"""Messages that differ in their values only, and readable forms of `Decoded`.

The contract suites of decoders and transforms use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.messages import MESSAGES


def messages_with(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = (),
) -> pa.RecordBatch:
    """Returns messages with these values, from offset 0 on.

    Args:
        values: the values.
        keys: the keys; None for messages without keys.
        headers: the headers of each message, as pairs.
    """
    n = len(values)
    columns: dict[str, Any] = {
        "topic": ["customers"] * n,
        "partition": [0] * n,
        "offset": list(range(n)),
        "timestamp": [0] * n,
        "timestamp_type": ["CreateTime"] * n,
        "key": [None] * n if keys is None else keys,
        "value": values,
        "headers": [[{"key": k, "value": v} for k, v in pairs] for pairs in headers or [[]] * n],
        "leader_epoch": [None] * n,
    }
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in MESSAGES], schema=MESSAGES)


def dead(decoded: Decoded) -> list[tuple[int, str, str]]:
    """Returns message number, stage and reason of the dead letters."""
    return list(
        zip(
            decoded.dead_index.to_pylist(),
            decoded.dead_stage.to_pylist(),
            decoded.dead_reason.to_pylist(),
            strict=True,
        )
    )


def deleted(decoded: Decoded) -> list[tuple[int, dict[str, Any]]]:
    """Returns message number and key of the deletes."""
    deletes = decoded.deletes
    return (
        []
        if deletes is None
        else list(zip(deletes.index.to_pylist(), deletes.keys.to_pylist(), strict=True))
    )


def verdicts(decoded: Decoded) -> dict[int, list[Any]]:
    """Returns the outcome of each message that isn't dropped or filtered, by its number.

    It is a list of the message's deletes (each a list with the key), its rows, or its refusal.
    """
    verdict_by_index: dict[int, list[Any]] = {}
    for index, key in deleted(decoded):
        verdict_by_index.setdefault(index, []).append([key])
    for index, row in zip(decoded.row_index.to_pylist(), decoded.rows.to_pylist(), strict=True):
        verdict_by_index.setdefault(index, []).append(row)
    details = decoded.dead_detail.to_pylist()
    for (index, stage, reason), detail in zip(dead(decoded), details, strict=True):
        verdict_by_index.setdefault(index, []).append((stage, reason, detail))
    return verdict_by_index


def check_shape(
    decoded: Decoded, columns: pa.Schema, messages: int, numbered: int | None = None
) -> None:
    """Checks the form of a result that every decoder and transform must keep.

    The rows have these columns, and each message has exactly one outcome.

    Args:
        decoded: the result.
        columns: the columns of the rows.
        messages: the number of messages.
        numbered: the upper limit of the messages' numbers, if some numbers aren't used; None
            for `messages`.
    """
    rows, refused = decoded.row_index.to_pylist(), decoded.dead_index.to_pylist()
    assert decoded.rows.schema.equals(columns)
    decoded.rows.validate(full=True)
    assert [
        f.name
        for f, c in zip(columns, decoded.rows.columns, strict=True)
        if c.null_count and not f.nullable
    ] == []
    assert (decoded.row_index.type, decoded.dead_index.type) == (pa.int64(), pa.int64())
    assert {a.type for a in (decoded.dead_stage, decoded.dead_reason, decoded.dead_detail)} == {
        pa.string()
    }
    assert (
        len(
            {
                len(a)
                for a in (
                    decoded.dead_index,
                    decoded.dead_stage,
                    decoded.dead_reason,
                    decoded.dead_detail,
                )
            }
        )
        == 1
    )
    assert decoded.rows.num_rows == len(rows)
    assert rows == sorted(rows)
    assert refused == sorted(set(refused))
    deleted_index = [] if decoded.deletes is None else decoded.deletes.index.to_pylist()
    if decoded.deletes is not None:
        assert deleted_index == sorted(deleted_index)
        assert decoded.deletes.keys.num_rows == len(deleted_index)
        assert all(
            column.type == columns.field(name).type
            for name, column in zip(
                decoded.deletes.keys.schema.names, decoded.deletes.keys, strict=True
            )
        )
        assert not any(column.null_count for column in decoded.deletes.keys)
    assert not {*rows, *deleted_index} & set(refused)
    assert all(0 <= index < (numbered or messages) for index in (*rows, *deleted_index, *refused))
    assert min(decoded.dropped, decoded.filtered) >= 0
    assert decoded.valid == len({*rows, *deleted_index})
    assert decoded.valid + len(refused) + decoded.dropped + decoded.filtered == messages
