"""An HTTP service as a lookup source; its answers are JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest import client_cache
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.json.decoder import DOCUMENT
from windrow.ingest.formats.json.strict import StrictJson
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.lookups.http.client import MOST_BYTES as MOST_OF_ONE
from windrow.ingest.lookups.http.client import AgainError, Certificates, Client, context_of
from windrow.ingest.lookups.http.request import UnaskableError, fill_body, target_of
from windrow.ingest.ports.lookup import MOST_BYTES, Answers, Ask
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_part import Part
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.secrets import Secret, read

_OF_SETTINGS = {401, 403, 405, 406, 407, 411, 415, 426}
"""Statuses that don't depend on the key, so every request would get them."""

_WHOLE = {200, 201, 203}
"""Statuses of a complete answer. 206 is a part of an answer, and 202 promises a later answer."""


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Decodes an object to its fields as raw JSON. If a name is there twice, the last one counts."""


@dataclass(frozen=True)
class HttpSource:
    """A service.

    Attributes:
        origin: scheme, host and port.
        target: path and query, with places `{column}` for keys.
        body: the body as JSON text, with places for keys; None for a GET.
        key_columns: the columns of the places.
        batch: keys per request; None: one key, and the answer needn't repeat it.
        model: the schema of the rows in an answer.
        results: the names that lead to the rows in an answer.
        headers: names and values of the headers.
        tls: the arguments of `context_of`.
        timeout: seconds for one request with all its tries.
        concurrency: simultaneous requests of one task.
        per_second: requests per second of all tasks together; None for no limit.
        token: reference to the token for `Authorization: Bearer`.
    """

    origin: str
    target: str
    body: str | None
    key_columns: tuple[str, ...]
    batch: int | None
    model: ModelReference
    results: tuple[str, ...]
    headers: tuple[tuple[str, str | Secret], ...] = field(repr=False)
    tls: Certificates = field(repr=False)
    timeout: float
    concurrency: int
    per_second: int | None
    token: Secret | None = field(default=None, repr=False)

    @property
    def identity(self) -> str:
        return self.origin + self.target.partition("?")[0]

    @property
    def is_repeatable(self) -> bool:
        return False

    def version(self) -> str:
        return ""

    def hold(self, _version: str, tasks: int) -> AbstractContextManager[str]:
        """Returns the number of tasks as the version to open, because tasks share the rate."""
        return nullcontext(str(tasks))

    def schema(self) -> pa.Schema:
        """Returns the model's columns. A key that is a whole number is int64, to fit every key."""
        integer_columns = [c.name for c in self.columns.columns if pa.types.is_integer(c.type)]
        wide = {name: pa.int64() for name in self.key_columns if name in integer_columns}
        return pa.schema([(c.name, wide.get(c.name, c.type)) for c in self.columns.columns])

    @property
    def columns(self) -> Columns:
        part = Part(setting="from.schema", finer="dead")
        return RowDecoder(self.model, DOCUMENT, part=part).columns

    def headers_to_send(self) -> list[tuple[bytes, bytes]]:
        """Reads the headers' secrets, and returns all headers of a request.

        Raises:
            SpecError: a secret isn't where its reference says.
        """
        headers = {"content-type": "application/json"} | {
            name.lower(): header_value
            if isinstance(header_value, str)
            else read(header_value, f"from.headers.{name}")
            for name, header_value in self.headers
        }
        if self.token is not None:
            headers["authorization"] = f"Bearer {read(self.token, 'from.token')}"
        headers |= {"host": self.origin.partition("://")[2], "accept-encoding": "identity"}
        return [(name.encode(), value.encode()) for name, value in headers.items()]

    def open(self, version: str, columns: pa.Schema) -> Ask:
        def ask(keys: pa.Table) -> Answers:
            cache_key = (self, version, tuple(columns.names))
            with client_cache.borrow_client(
                cache_key, partial(_Asker, self, version, columns)
            ) as asker:
                return asker.answers(keys)

        return ask


class _Asker:
    """A worker's client of a service, and the decoder of its answers."""

    def __init__(self, source: HttpSource, version: str, columns: pa.Schema) -> None:
        self._source = source
        self._body = None if source.body is None else msgspec.json.decode(source.body)
        self._schema = pa.schema(
            sorted(columns, key=lambda field: field.name not in source.key_columns)
        )
        by_name = {column.name: column for column in source.columns.columns}
        chosen = tuple(
            replace(by_name[f.name], type=f.type, nullable=source.batch is None)
            if f.name in source.key_columns
            else by_name[f.name]
            for f in self._schema
        )
        self._decoder = StrictJson(replace(source.columns, columns=chosen))
        interval = int(version or 1) / source.per_second if source.per_second else 0.0
        context = context_of(source.tls)
        self._client = Client(
            source.origin, source.headers_to_send, source.timeout, interval, context
        )

    def close(self) -> None:
        self._client.close()

    def answers(self, keys: pa.Table) -> Answers:
        """Asks for keys. If a batch of keys is refused, each half of it is asked for again.

        Raises:
            SpecError: the answers take too much memory, or the settings can't be used.
            UnreachableError: the service doesn't answer.
        """
        rows, refused = list[Sequence[object]](), dict[str, list[Sequence[object]]]()
        key_columns, threads = self._schema.names[: keys.num_columns], self._source.concurrency
        key_rows, batch_size = keys.to_pylist(), self._source.batch or 1
        work = [
            key_rows[start : start + batch_size] for start in range(0, len(key_rows), batch_size)
        ]
        requests = size = 0
        with ThreadPoolExecutor(threads) as pool:
            while work:
                part, work = work[: 4 * threads], work[4 * threads :]
                for batch, (rows_or_reason, tries) in zip(
                    part, pool.map(self._ask, part), strict=True
                ):
                    key, requests = [batch[0][name] for name in key_columns], requests + tries
                    decoded_or_reason = self._decode(rows_or_reason, key)
                    if not isinstance(decoded_or_reason, str):
                        rows += decoded_or_reason
                        size += sum(map(len, rows_or_reason))
                    elif len(batch) > 1:
                        work += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                    else:
                        refused.setdefault(decoded_or_reason, []).append(key)
                if size > MOST_BYTES:
                    raise SpecError(
                        f"The answers of {self._source.identity} take too much memory",
                        "validate",
                        "Decode fewer messages at once (source.tuning.batch_messages).",
                    )
        types = pa.schema([self._schema.field(name) for name in key_columns])
        refused_tables = {
            reason: _table(refused_keys, types) for reason, refused_keys in refused.items()
        }
        return Answers(_table(rows, self._schema), requests, refused_tables)

    def _ask(self, keys: Sequence[Mapping[str, Any]]) -> tuple[list[bytes] | str, int]:
        """Sends one request for some keys.

        Returns:
            The rows as raw JSON, or the reason why the keys are refused; the number of tries.
        """
        try:
            target = target_of(self._source.target, keys[0])
        except UnaskableError as error:
            return str(error), 0
        body = None if self._body is None else msgspec.json.encode(fill_body(self._body, keys))
        return self._client.ask(target, body, self._parse)

    def _parse(self, status: int, body: bytes | None) -> list[bytes] | str:
        """Reads one response.

        Args:
            status: the HTTP status.
            body: the body; None if it is too large.

        Returns:
            The rows as raw JSON, or the reason why the keys are refused.

        Raises:
            AgainError: the body is no JSON.
            SpecError: the service would refuse every request with these settings.
        """
        is_batched = self._source.batch is not None
        if status == 204 or (status == 404 and not is_batched):
            return []
        if status in _OF_SETTINGS or 300 <= status < 400 or status == 404:
            raise SpecError(
                f"{self._source.identity} answered {status}",
                "setup",
                "Check the address (no redirect is followed), the headers and the token, and their"
                " rights.",
            )
        if status not in _WHOLE:
            return f"it answered {status}"
        if body is None:
            return f"its answer is larger than {MOST_OF_ONE >> 20} MiB"
        try:
            return _rows_in(body, self._source.results, is_batched=is_batched)
        except (KeyError, msgspec.ValidationError, RecursionError):
            path = ".".join(("$", *self._source.results))
            return f"Expected one object, or one list of objects - at {path}"
        except (msgspec.DecodeError, UnicodeDecodeError):
            with suppress(ValueError, RecursionError):
                # json.loads accepts these values; another try would get the same answer
                json.loads(body)
                return "its answer has NaN, Infinity or half a surrogate pair"
            raise AgainError("what it answered is no JSON", 0) from None

    def _decode(
        self, rows: list[bytes] | str, key: Sequence[object]
    ) -> Sequence[list[object]] | str:
        """Decodes the rows of an answer.

        Args:
            rows: the rows as raw JSON, or the reason of a refusal, which is returned.
            key: the key of a request for one key. A row of its answer needn't repeat the key,
                so the key is written into the row.

        Returns:
            The values of each row, or the reason why a row can't be used.
        """
        if isinstance(rows, str):
            return rows
        try:
            decoded_rows = list(map(self._decoder.decode, rows))
        except RefusedValueError as misfit:
            return misfit.detail
        if self._source.batch:
            return decoded_rows
        for row, text in zip(decoded_rows, rows, strict=True):
            compared = zip(row, key, self._schema, strict=False)
            if any(
                pa.scalar(returned, f.type).as_py() not in {None, requested}
                for returned, requested, f in compared
            ):
                return "its answer has another key"
            empty = all(value is None for value in row)
            if empty and not _OBJECT.decode(text).keys() & set(
                self._source.columns.arrow_schema.names
            ):
                return "its answer has none of the schema's fields"
            row[: len(key)] = key
        return decoded_rows


def _table(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _rows_in(body: bytes, names: Sequence[str], *, is_batched: bool) -> list[bytes]:
    """Returns the rows in an answer, each as raw JSON.

    In an answer for one key, null means no row.

    Args:
        body: the answer.
        names: the names that lead to the rows.
        is_batched: whether the request was for a batch of keys.

    Raises:
        msgspec.DecodeError: the answer is no JSON.
        KeyError: a name is missing, or it is there twice.
        msgspec.ValidationError: there are no rows at the end of the names.
    """
    raw = msgspec.json.decode(body, type=msgspec.Raw)
    for name in names:
        inner = _OBJECT.decode(raw)
        # numbers stay text: Python refuses to parse an integer of more than 4,300 digits
        fields = json.loads(bytes(raw), object_pairs_hook=list, parse_int=str)
        if [field_name for field_name, _ in fields].count(name) > 1:
            raise KeyError(name)
        raw = inner[name]
    if bytes(raw).startswith(b"{"):
        return [bytes(raw)]
    either = list[msgspec.Raw] if is_batched else list[msgspec.Raw] | None
    rows = map(bytes, msgspec.json.decode(raw, type=either) or ())
    return [row for row in rows if row != b"null"]
