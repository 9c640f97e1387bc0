"""A file that somebody asks for, `.parquet` or `.jsonl`: there whole or not at all; and
bytes and instants as JSON has them.
"""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.errors import SpecError

Take = Callable[[pa.RecordBatch], None]

Documents = Callable[[pa.RecordBatch], Sequence[dict[str, Any]]]
"""The rows of a batch as JSON has them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_file(
    path: Path, schema: pa.Schema, documents: Documents, read: Callable[[Take], None]
) -> int:
    """Write what `read` gives away, batch by batch, replacing a file of that name once
    the new one is whole; how many rows.

    Args:
        path: its ending says the form: `.parquet`, or `.jsonl` with a document a line.
        schema: of the batches.
        documents: rows for `.jsonl`.
        read: gives away one batch after the other.

    Raises:
        SpecError: the name ends otherwise, or its folder isn't there.
    """
    forms = {
        ".parquet": partial(_parquet, schema=schema),
        ".jsonl": partial(_jsonl, documents=documents),
    }
    form: Callable[[Path], AbstractContextManager[Take]] | None = forms.get(path.suffix)
    if form is None:
        raise SpecError(
            f"{path.name} is neither a .parquet nor a .jsonl file",
            "stage",
            "Name one of the two: the ending says the form.",
        )
    if not path.parent.is_dir():
        raise SpecError(f"There is no folder {path.parent}", "stage", "Make it, or name another.")
    part, count = path.with_name(f".{path.name}.{uuid.uuid4().hex}"), 0
    try:
        with form(part) as write:

            def take(batch: pa.RecordBatch) -> None:
                nonlocal count
                write(batch)
                count += batch.num_rows

            read(take)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return count


@contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[Take]:
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _jsonl(path: Path, documents: Documents) -> Iterator[Take]:
    with path.open("x", encoding="utf-8") as file:
        yield lambda batch: file.writelines(
            json.dumps(document, ensure_ascii=False) + "\n" for document in documents(batch)
        )


def iso_instant(millis: int) -> str:
    """Epoch milliseconds as an ISO instant."""
    return (
        (_EPOCH + timedelta(milliseconds=millis))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def text_or_base64(value: bytes | None) -> str | dict[str, str] | None:
    """Text where the bytes are UTF-8, else `{"base64": "..."}`, which no text can be
    taken for; null where there are none.
    """
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def payload(message: dict[str, Any]) -> dict[str, Any]:
    """Key, value and headers of a message, those that it has, as JSON has them."""
    document: dict[str, Any] = {
        name: text_or_base64(message[name]) for name in ("key", "value") if name in message
    }
    if "headers" in message:
        document["headers"] = [
            {"key": header["key"], "value": text_or_base64(header["value"])}
            for header in message["headers"]
        ]
    return document
