"""Writes a user's `.parquet` or `.jsonl` file, and converts bytes and instants to JSON."""

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
from windrow.ingest.ports.reader import Take

Documents = Callable[[pa.RecordBatch], Sequence[dict[str, Any]]]
"""A function that converts the rows of a batch to JSON documents."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_file(
    path: Path, schema: pa.Schema, documents: Documents, read: Callable[[Take], None]
) -> int:
    """Writes batches to a file; returns the number of rows.

    The new file replaces an old one only after it is complete.

    Args:
        path: the file. It ends with `.parquet`, or with `.jsonl` for a JSON document per
            line.
        schema: the schema of the batches.
        documents: converts a batch for `.jsonl`.
        read: passes one batch after the other to its argument.

    Raises:
        SpecError: the name has another ending, or its folder doesn't exist.
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
            "Name a file with one of these endings.",
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
    """Converts epoch milliseconds to an ISO instant."""
    return (
        (_EPOCH + timedelta(milliseconds=millis))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def text_or_base64(value: bytes | None) -> str | dict[str, str] | None:
    """Converts bytes to text if they are UTF-8, else to `{"base64": "..."}`. Null stays null."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def payload(message: dict[str, Any]) -> dict[str, Any]:
    """Converts key, value and headers of a message to JSON. A missing one stays missing."""
    document: dict[str, Any] = {
        name: text_or_base64(message[name]) for name in ("key", "value") if name in message
    }
    if "headers" in message:
        document["headers"] = [
            {"key": header["key"], "value": text_or_base64(header["value"])}
            for header in message["headers"]
        ]
    return document
