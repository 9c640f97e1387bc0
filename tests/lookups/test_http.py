"""Lookups in an HTTP service: a real server on loopback that simulates faults."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.kafka.listener import TLS, server_context
from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest import client_cache, http_timeouts, retry
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.lookups.http import client as clients
from windrow.ingest.lookups.http import source as sources
from windrow.ingest.lookups.http.kind import HttpSection
from windrow.ingest.lookups.http.request import UnaskableError, fill_body, target_of
from windrow.ingest.ports.transform import Transform
from windrow.ingest.testing.contracts.transform import (
    Before,
    TransformContract,
    apply,
    messages_for,
)
from windrow.ingest.testing.contracts.values import dead
from windrow.ingest.transform.lookup.kind import LookupStepSection
from windrow.ingest.transform.lookup.step import Lookup

MODEL = """\
from __future__ import annotations
import pandera.polars as pa
import polars as pl

class Place(pa.DataFrameModel):
    ip: pl.String
    country: pl.String = pa.Field(nullable=True)
    n: pl.Int32 = pa.Field(nullable=True)

class Wide(pa.DataFrameModel):
    id: pl.Int32
    big: pl.Int64 = pa.Field(nullable=True)
    price: pl.Decimal(12, 2) = pa.Field(nullable=True)
    at: pl.Datetime(time_zone="UTC", time_unit="us") = pa.Field(nullable=True)
    day: pl.Date = pa.Field(nullable=True)
    on: pl.Boolean
"""
VISITS = pa.RecordBatch.from_pydict(
    {"visit": pa.array([1, 2, 3, 4, 5]), "ip": pa.array(["b", "a", "x y/z?", None, "b"])}
)
HUSH = "hush-hush"


@dataclass(frozen=True)
class ServiceRequest:
    """A request as the service receives it."""

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]

    @property
    def key(self) -> str:
        return unquote(self.path.rpartition("/")[2])


@dataclass
class Reply:
    """The service's reply.

    Attributes:
        body: a document or bytes.
        status: the status code.
        headers: the headers.
        worse: handles the request in place of a regular reply.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    worse: Callable[[BaseHTTPRequestHandler], None] | None = None


class Service(ThreadingHTTPServer):
    """A service that answers each request with `reply` and records it."""

    daemon_threads = True
    scheme = "http"

    def __init__(self, reply: Callable[[ServiceRequest], Reply]) -> None:
        self.reply, self.requests = reply, list[ServiceRequest]()
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that hung up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size)) if size else None
        request = ServiceRequest(self.command, self.path, body, dict(self.headers.items()))
        self.server.requests.append(request)
        reply = self.server.reply(request)
        if reply.worse is not None:
            self.close_connection = True
            reply.worse(self)
            return
        text = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs nothing."""


@contextmanager
def serving(reply: Callable[[ServiceRequest], Reply]) -> Iterator[Service]:
    with Service(reply) as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.over.set()
            service.shutdown()
            thread.join(timeout=60)


def speak_tls(service: Service, *, asks_clients: bool = False) -> None:
    """Makes a service speak HTTPS; it may ask for a client's certificate."""
    context = server_context(asks_clients=asks_clients)
    service.socket = context.wrap_socket(service.socket, server_side=True)
    service.scheme = "https"


def reply_one(request: ServiceRequest) -> Reply:
    """Returns the reply about the place of one key."""
    row_by_key = {
        "a": {"country": "UA", "n": 1},
        "b": {"country": None},
        "x y/z?": {"n": 2**31 - 1},
    }
    return Reply(row_by_key[request.key]) if request.key in row_by_key else Reply(status=404)


def reply_many(request: ServiceRequest) -> Reply:
    """Returns the reply about the places of many keys."""
    keys = [key for key in request.body["ips"] if key in {"a", "b"}]
    return Reply({"data": {"items": [{"ip": key, "country": key.upper()} for key in keys]}})


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    """The cache of a worker, which keeps a client for the next batch and closes it at the end."""
    with client_cache.keeping():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "geo.py").write_text(MODEL)
    return tmp_path


BATCHES = {"body": {"ips": ["{ip}"], "lang": "en"}, "results": "data.items"}


def lookup(folder: Path, service: Service, **more: Any) -> Lookup:
    """Returns a lookup of country and number, with one key in a request or with BATCHES."""
    step_options = {name: more.pop(name) for name in ("on_miss", "first_by") if name in more}
    url = service.url + ("/v1/geo" if "body" in more else "/v1/geo/{ip}")
    options = {"http": url, "schema": "geo.py:Place", "timeout": "20s", **more}
    source = HttpSection.model_validate(options).source(folder)
    take = (("country", "country"), ("n", "n"))
    return Lookup("geo", (("ip", "ip"),), take, source, **step_options)


class TestHttp(TransformContract):
    """A lookup with keys that exist, are missing, and are refused."""

    @pytest.fixture
    def input_rows(self) -> Before:
        return Before(columns_of(VISITS), VISITS, (0, 0, 1, 2, 3))

    @pytest.fixture(params=["one", "many"])
    def transform(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Transform]:
        is_batched = request.param == "many"
        with serving(reply_many if is_batched else reply_one) as service:
            yield lookup(folder, service, **(BATCHES if is_batched else {}), on_miss="dead")


def test_a_key_a_request(folder: Path) -> None:
    """Each distinct key is requested once, percent-encoded. A 404 and a null key are misses."""
    with serving(reply_one) as service:
        step = lookup(folder, service)
        assert step.source.version() == ""
        assert step.source.identity == f"{service.url}/v1/geo/{{ip}}"
        output = apply(step, decoded(VISITS))
        assert output.rows["country"].to_pylist() == [None, "UA", None, None, None]
        assert output.rows["n"].to_pylist() == [None, 1, 2**31 - 1, None, None]
        assert output.rows.schema.equals(step.columns(columns_of(VISITS)).arrow_schema)
        (looked_up,) = output.lookups
        assert (looked_up.keys, looked_up.requests) == (3, 3)
        assert (looked_up.hits, looked_up.misses) == (4, 1)
        assert sorted(request.path for request in service.requests) == [
            "/v1/geo/a",
            "/v1/geo/b",
            "/v1/geo/x%20y%2Fz%3F",
        ]
        for none in (Reply({"error": "no such place"}, 404), Reply(status=204), Reply(b"null")):
            service.reply = lambda _, none=none: none
            assert apply(step, decoded(VISITS)).lookups[0].misses == 5


def test_many_keys_a_request(folder: Path) -> None:
    """A hundred thousand rows with a thousand keys make the least number of requests.

    The batch size determines it.
    """
    ips = [f"ip{n % 1000}" for n in range(100_000)]
    rows = pa.RecordBatch.from_pydict({"ip": ips})

    def all_there(request: ServiceRequest) -> Reply:
        items = [{"ip": ip, "country": ip.upper(), "more": [1]} for ip in request.body["ips"]]
        return Reply({"data": {"items": [None, *reversed(items), {"ip": "not asked for"}]}})

    with serving(all_there) as service:
        step = lookup(folder, service, **BATCHES, batch=64).open()
        outputs = []
        for start in range(0, len(ips), 30_000):
            input_batch = decoded(rows.slice(start, 30_000))
            outputs.append(step(input_batch, messages_for(input_batch)))
    assert [c for f in outputs for c in f.rows["country"].to_pylist()] == [ip.upper() for ip in ips]
    assert sum(f.lookups[0].requests for f in outputs if f.lookups) == 16 == len(service.requests)
    assert all(a.method == "POST" and a.body["lang"] == "en" for a in service.requests)
    assert sorted(ip for a in service.requests for ip in a.body["ips"]) == sorted(set(ips))
    assert max(len(a.body["ips"]) for a in service.requests) == 64


WIDE = {
    "big": 2**53 + 1,
    "price": "12.30",
    "at": "2026-01-05T01:00:00.000001+02:00",
    "day": "2026-01-05",
    "on": True,
}


def wide(folder: Path, service: Service) -> Lookup:
    options = {"http": service.url + "/{id}", "schema": "geo.py:Wide"}
    source = HttpSection.model_validate(options).source(folder)
    return Lookup("w", (("id", "id"),), tuple((name, f"its_{name}") for name in WIDE), source)


def test_values_come_as_they_are(folder: Path) -> None:
    """Values keep all digits and microseconds, in UTC. A key may be larger than its column."""
    with serving(lambda _: Reply(WIDE)) as service:
        output = apply(wide(folder, service), decoded(pa.RecordBatch.from_pydict({"id": [2**40]})))
        assert service.requests[0].path == f"/{2**40}"
    moment = datetime(2026, 1, 4, 23, 0, 0, 1, UTC)
    (row,) = output.rows.to_pylist()
    assert list(row.values())[1:] == [
        2**53 + 1,
        Decimal("12.30"),
        moment,
        date(2026, 1, 5),
        True,
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"big": 2**63}, r"Expected an integer of 64 bits - at \$.big"),
        ({"big": 1.5}, r"Expected int, got float - at \$.big"),
        ({"price": "12.301"}, r"Expected a decimal of 12 digits"),
        ({"at": "2026-01-05T01:00:00"}, "with an offset"),
        ({"at": "2026-01-05T01:00:00.0000001Z"}, "whole microseconds"),
        ({"day": "2026-02-30"}, "the calendar has"),
        ({"on": "true"}, "Expected bool, got str"),
        ({"on": None}, r"Expected a value, got null - at \$.on"),
    ],
)
def test_values_of_other_types_refuse_their_key(
    changed: dict[str, Any], message: str, folder: Path
) -> None:
    """A value of another type makes a dead letter with the field's name and without the value.

    Nothing is rounded, cut or guessed.
    """
    with serving(lambda a: Reply(WIDE | (changed if a.key == "7" else {}))) as service:
        rows = decoded(pa.RecordBatch.from_pydict({"id": [7, 8]}))
        output = apply(wide(folder, service), rows)
    assert output.rows["id"].to_pylist() == [8]
    assert dead(output) == [(0, "rules", "lookup:w:refused")]
    (detail,) = output.dead_detail.to_pylist()
    assert re.search(message, detail)
    assert "12.301" not in detail
    assert (output.lookups[0].hits, output.lookups[0].misses) == (1, 0)


@pytest.mark.parametrize("is_batched", [False, True])
def test_a_refused_key_takes_no_other_along(is_batched: bool, folder: Path) -> None:
    """A refused key doesn't affect the other keys of its batch.

    1. The service refuses a batch, or its answer is too large or malformed.
    2. The halves of the batch are requested, and so on.
    3. Only the refused key's message is a dead letter, and the key may be answered by a later
       request.
    """
    ips = [f"ip{n}" for n in range(10)]
    bad = {
        "ip3": Reply({"error": HUSH}, 422),
        "ip5": Reply(b'{"data": "' + b"x" * clients.MOST_BYTES + b'"}'),
        "ip7": Reply({"data": {"items": [{"ip": "ip7", "n": HUSH}]}}),
        "ip8": Reply({"data": 1}),
        "ip9": Reply(b'{"more": "\\ud800"}'),
    }

    def reply(request: ServiceRequest) -> Reply:
        keys = request.body["ips"] if is_batched else [request.key]
        first = next((bad[key] for key in keys if key in bad), None)
        items = json.dumps([{"ip": ip, "n": 1} for ip in keys])
        # Python's own parser refuses to parse a number with so many digits.
        return first or Reply(f'{{"more": {"1" * 5000}, "data": {{"items": {items}}}}}'.encode())

    with serving(reply) as service:
        more = BATCHES if is_batched else {"results": "data.items"}
        step = lookup(folder, service, **more, on_miss="fail")
        rows = decoded(pa.RecordBatch.from_pydict({"ip": ips}))
        output = apply(step, rows)
        assert dead(output) == [(n, "rules", "lookup:geo:refused") for n in (3, 5, 7, 8, 9)]
        details = output.dead_detail.to_pylist()
        assert [d.partition(" - in")[0] for d in details] == [
            "geo refuses its key: it answered 422",
            "geo refuses its key: its answer is larger than 4 MiB",
            "geo refuses its key: Expected int, got str - at $.n",
            "geo refuses its key: Expected one object, or one list of objects - at $.data.items",
            "geo refuses its key: its answer has NaN, Infinity or half a surrogate pair",
        ]
        assert output.rows["n"].to_pylist() == [1] * 5
        assert output.lookups[0].requests == len(service.requests)
        bad.clear()
        assert apply(step, rows).rows["n"].to_pylist() == [1] * 10


def test_answers_that_take_too_much_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that need too much memory raise SpecError, also within one batch of messages."""
    monkeypatch.setattr(sources, "MOST_BYTES", 10)
    with serving(reply_one) as service, pytest.raises(SpecError, match="take too much memory"):
        apply(lookup(folder, service), decoded(VISITS))


def half(handler: BaseHTTPRequestHandler) -> None:
    """Sends a body that ends before its declared length."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"country": "U')


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Ends the connection without an answer."""


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "first",
    [
        *(Reply(status=status) for status in (408, 425, 500, 502, 503)),
        Reply(status=429, headers={"Retry-After": "1"}),
        Reply(status=503, headers={"Retry-After": "Mon, 05 Jan 2026 01:00:00 GMT"}),
        Reply(b"<html>a proxy's page</html>"),
        Reply(b'{"country": "U'),
        Reply(worse=half),
        Reply(worse=cut),
    ],
)
def test_what_is_worth_another_try(first: Reply, folder: Path) -> None:
    """Server errors, rate limits, lost connections and truncated answers are retried."""
    replies = iter([first, first])
    with serving(lambda a: next(replies, None) or reply_one(a)) as service:
        row = decoded(pa.RecordBatch.from_pydict({"ip": ["a"]}))
        output = apply(lookup(folder, service), row)
        assert output.rows["country"].to_pylist() == ["UA"]
        assert output.lookups[0].requests == 3 == len(service.requests)


def test_a_service_that_asks_to_wait_too_long(folder: Path) -> None:
    """A service that asks for a too long wait isn't requested again in this run.

    The window fails at once, without a payload in the error.
    """
    later = Reply({"secret": HUSH}, 429, {"Retry-After": "3600"})
    with serving(lambda _: later) as service:
        with pytest.raises(UnreachableError, match="it answered 429") as excinfo:
            apply(lookup(folder, service, concurrency=1), decoded(VISITS))
        assert len(service.requests) == 1
    assert "hush" not in str(excinfo.value)
    assert excinfo.value.exit_code == 3


def test_a_service_that_is_gone_is_left_alone(folder: Path) -> None:
    """A task stops after twenty failures in a row, even if a request has time for more tries."""
    rows = decoded(pa.RecordBatch.from_pydict({"ip": [f"ip{n}" for n in range(1000)]}))
    with serving(lambda _: Reply(status=500)) as service:
        with pytest.raises(UnreachableError, match="it answered 500"):
            apply(lookup(folder, service, timeout="5m", concurrency=8), rows)
        assert 20 <= len(service.requests) < 28
    with pytest.raises(UnreachableError, match="ConnectError, ConnectionRefusedError"):
        apply(lookup(folder, service, timeout="300ms"), rows)


def test_failures_that_are_not_in_a_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task continues if failures aren't in a row."""
    monkeypatch.setattr(clients, "MOST_FAILURES", 2)
    with serving(lambda _: Reply({"n": 1}, 500 if len(service.requests) % 2 else 200)) as service:
        output = apply(lookup(folder, service, concurrency=1), decoded(VISITS))
        assert (output.lookups[0].hits, len(service.requests)) == (4, 6)


_KEYS = {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"ip": "z", "n": 1}, "its answer has another key"),
        ([{"n": 1}, {"ip": "A", "n": 2}], "its answer has another key"),
        ({"error": "rate limited"}, "its answer has none of the schema's fields"),
        ({}, "its answer has none of the schema's fields"),
        ([{"message": None}], "its answer has none of the schema's fields"),
        ({"ip": 7, "n": 1}, r"Expected str, got int - at \$.ip"),
        *((Reply({"n": 1}, status), f"it answered {status}") for status in (202, 205, 206, 207)),
    ],
)
def test_an_answer_that_is_not_the_keys(payload: Any, message: str, folder: Path) -> None:
    """An answer that doesn't belong to the key refuses the key.

    It is neither a row nor a miss, so `on_miss` doesn't make it null.
    """

    def reply(request: ServiceRequest) -> Reply:
        odd_reply = payload if isinstance(payload, Reply) else Reply(payload)
        return odd_reply if request.key == "b" else Reply({"ip": request.key, "country": None})

    with serving(reply) as service:
        rows = decoded(pa.RecordBatch.from_pydict({"ip": ["a", "b"]}))
        output = apply(lookup(folder, service), rows)
    assert dead(output) == [(1, "rules", "lookup:geo:refused")]
    assert re.search(f"geo refuses its key: {message} - in", output.dead_detail[0].as_py())
    assert (output.lookups[0].hits, output.lookups[0].misses) == (1, 0)


@pytest.mark.parametrize(
    ("column", "key", "same_key", "different_key"),
    [
        ("id", 2**40, 2**40, 7),
        (
            "at",
            datetime(2026, 1, 5, tzinfo=UTC),
            "2026-01-05T01:00:00+01:00",
            "2026-01-05T00:00:01Z",
        ),
        ("day", date(2026, 1, 5), "2026-01-05", "2026-01-06"),
        ("price", Decimal("1.20"), "1.2", "1.21"),
        ("on", True, True, False),
    ],
)
def test_an_answer_may_repeat_its_key(
    column: str, key: Any, same_key: object, different_key: object, folder: Path
) -> None:
    """An answer may repeat its key in any form that the model reads, with an equal value."""
    for repeated_key, hits in ((same_key, 1), (None, 1), (different_key, 0)):
        more = {} if repeated_key is None else {column: repeated_key}
        with serving(lambda _, more=more: Reply({"big": 5} | more)) as service:
            options = {"http": f"{service.url}/{{{column}}}", "schema": "geo.py:Wide"}
            source = HttpSection.model_validate(options).source(folder)
            keys = pa.array([key], source.schema().field(column).type)
            step = Lookup("w", (("key", column),), (("big", "big"),), source)
            output = apply(step, decoded(pa.RecordBatch.from_arrays([keys], ["key"])))
        assert output.lookups[0].hits == hits
        assert len(dead(output)) == 1 - hits


def test_a_part_of_an_answer_is_asked_for_in_parts(folder: Path) -> None:
    """A partial answer to many keys is requested again in halves, until it is complete."""

    def reply(request: ServiceRequest) -> Reply:
        items = [{"ip": ip, "n": _KEYS[ip]} for ip in request.body["ips"][:2]]
        return Reply({"data": {"items": items}}, 206 if len(request.body["ips"]) > 2 else 201)

    with serving(reply) as service:
        rows = decoded(pa.RecordBatch.from_pydict({"ip": [*_KEYS]}))
        output = apply(lookup(folder, service, **BATCHES, on_miss="fail"), rows)
    assert output.rows["n"].to_pylist() == [*_KEYS.values()]


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": {"items": [{"ip": "a"}]}, "data": {"items": [{"ip": "a"}]}}',
        b'{"data": {"items": [], "more": 1, "items": [{"ip": "a"}]}}',
        b'{"data": {"items": [{"ip": "a"}], "items": []}}',
    ],
)
def test_a_name_twice_on_the_way_to_the_rows(body: bytes, folder: Path) -> None:
    """A repeated name on the path to the rows refuses the key, because it is ambiguous."""
    with serving(lambda _: Reply(body)) as service:
        rows = decoded(pa.RecordBatch.from_pydict({"ip": ["a"]}))
        for more in ({"results": "data.items"}, BATCHES):
            output = apply(lookup(folder, service, **more), rows)
            assert dead(output) == [(0, "rules", "lookup:geo:refused")]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 415])
def test_what_no_key_is_to_blame_for(status: int, folder: Path) -> None:
    """A status that no key causes raises SpecError.

    A redirect isn't followed. A refused login makes no dead letters. A 404 to a batch makes no
    misses.
    """
    with (
        serving(reply_one) as redirect_target,
        serving(
            lambda _: Reply(HUSH, status, {"Location": f"{redirect_target.url}/{HUSH}"})
        ) as service,
    ):
        with pytest.raises(SpecError, match=f"answered {status}") as excinfo:
            apply(lookup(folder, service, **(BATCHES if status == 404 else {})), decoded(VISITS))
        assert not redirect_target.requests
    assert HUSH not in str(excinfo.value)


def test_several_rows_of_one_key(folder: Path) -> None:
    """Several rows of one key are refused, or the first one counts by `first_by`.

    An empty list is a miss.
    """
    both = [{"ip": "a", "n": 2}, {"ip": "a", "n": 1}]
    with serving(lambda a: Reply(both if a.key == "a" else [])) as service:
        with pytest.raises(RefusedError, match="several rows of one key"):
            apply(lookup(folder, service), decoded(VISITS))
        first = lookup(folder, service, first_by=("n", False))
        assert apply(first, decoded(VISITS)).rows["n"].to_pylist() == [None, 1, None, None, None]


def test_a_row_that_does_not_say_its_key_is_no_miss(folder: Path) -> None:
    """A row without its key is refused and is no miss.

    The model may name another field, or the service may omit it.
    """
    with serving(lambda _: Reply([{"address": "a"}])) as service:
        step = lookup(folder, service, body={"ips": ["{ip}"]})
        output = apply(step, decoded(VISITS))
    assert [reason for _, _, reason in dead(output)] == ["lookup:geo:refused"] * 4
    assert "misses a required field - at $.ip" in output.dead_detail[0].as_py()


def test_secrets_are_read_where_they_are_sent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret is read by reference when it is sent, relative to the spec's folder.

    No error and no pickle has it.
    """
    (folder / "token").write_text(f"Bearer {HUSH}\n")
    headers = {"Authorization": {"file": "token"}, "x-tenant": "shop"}
    with serving(reply_one) as service:
        step = lookup(folder, service, headers=headers)
        apply(step, decoded(VISITS))
        sent_headers = service.requests[0].headers
        assert (sent_headers["authorization"], sent_headers["x-tenant"]) == (
            f"Bearer {HUSH}",
            "shop",
        )
        assert (sent_headers["host"], sent_headers["accept-encoding"]) == (
            service.url[7:],
            "identity",
        )
        assert HUSH.encode() not in pickle.dumps(step)
        (folder / "token").write_text(f"{HUSH}\nX-Other: {HUSH}é")
        with client_cache.keeping(), pytest.raises(SpecError, match="headers can't be") as excinfo:
            apply(step, decoded(VISITS))
        assert HUSH not in str(excinfo.value)
        (folder / "token").unlink()
        with client_cache.keeping(), pytest.raises(SpecError, match="token, which from"):
            apply(step, decoded(VISITS))


@pytest.mark.parametrize("kind", ["token", "header"])
def test_a_secret_that_is_replaced(kind: str, folder: Path) -> None:
    """A refused secret is read again, and the refused requests are repeated with the new one.

    If the secret is the same as before, the run stops.
    """
    valid = ["first-hush"]
    file = folder / "token"
    header = {"headers": {"X-Api-Key": {"file": "token"}}}
    name, prefix = ("authorization", "Bearer ") if kind == "token" else ("x-api-key", "")

    def reply(request: ServiceRequest) -> Reply:
        is_let_in = request.headers[name] == prefix + valid[-1]
        return Reply({"n": 1}) if is_let_in else Reply(status=401)

    with serving(reply) as service:
        file.write_text("first-hush\n")
        step = lookup(
            folder, service, **({"token": {"file": "token"}} if kind == "token" else header)
        )
        rows = decoded(pa.RecordBatch.from_pydict({"ip": [f"ip{n}" for n in range(40)]}))
        assert apply(step, rows).lookups[0].hits == 40
        valid.append("second-hush")
        file.write_text("second-hush\n")
        looked_up = apply(step, rows).lookups[0]
        assert (looked_up.hits, looked_up.requests) == (40, len(service.requests) - 40)
        assert 40 < looked_up.requests <= 44
        assert b"hush" not in pickle.dumps(step)
        assert "hush" not in repr(step)
        valid.append("third-hush")
        service.requests.clear()
        with pytest.raises(SpecError, match="answered 401"):
            apply(step, rows)
        assert {request.headers[name] for request in service.requests} == {f"{prefix}second-hush"}
        assert len(service.requests) < 20


def test_certificates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private CA is trusted, and the client's certificate is sent.

    Their files are relative to the spec's folder. Without them nothing is requested. An
    unusable file is named.
    """
    for name in ("broker.pem", "broker.key.pem"):
        shutil.copy(TLS / name, folder)
    client_tls = {"certificate": "broker.pem", "key": "broker.key.pem"}
    monkeypatch.setattr(clients, "MOST_FAILURES", 1)
    with serving(reply_one) as service:
        speak_tls(service, asks_clients=True)

        def country(**tls: object) -> list[object]:
            step = lookup(folder, service, tls=tls or None)
            with client_cache.keeping():
                return apply(step, decoded(VISITS)).rows["country"].to_pylist()

        with pytest.raises(UnreachableError, match="certificate isn't trusted"):
            country()
        with pytest.raises(UnreachableError):
            country(ca="broker.pem")
        assert service.requests == []
        assert "UA" in country(ca="broker.pem", **client_tls)
        for bad_files in (
            {"ca": "none.pem"},
            client_tls | {"key": "geo.py"},
            client_tls | {"key": "broker.pem"},
        ):
            with pytest.raises(SpecError, match=r"The files of from\.tls can't be used: "):
                country(**bad_files)


def test_tasks_share_the_rate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of a window share the rate limit.

    With ten requests a second, each of five tasks may send one each half second, including
    retries. A wait for the turn doesn't use up a request's timeout. A service may ask to wait
    any number of times, but may fail only twenty times.
    """
    now, waits = [100.0], list[float]()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            waits.append(seconds)
            now[0] += seconds

    for module in (clients, http_timeouts):
        monkeypatch.setattr(module, "time", Clock)
    without_pauses = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None)
    monkeypatch.setattr(retry, "time", without_pauses)
    busy = [Reply(status=429, headers={"Retry-After": "1"})] * (clients.MOST_FAILURES + 1)
    replies = iter(busy)
    with serving(lambda a: next(replies, None) or reply_one(a)) as service:
        step = lookup(folder, service, concurrency=1, timeout="1m")
        assert apply(step, decoded(VISITS)).lookups[0].requests == len(busy) + 3
    assert sum(waits) == pytest.approx(len(busy))
    waits.clear()
    replies = iter([Reply(status=500), Reply(status=500)])
    with serving(lambda a: next(replies, None) or reply_one(a)) as service:
        step = lookup(folder, service, per_second=10, concurrency=1, timeout="400ms")
        with step.source.hold("", 5) as version:
            apply(step.pinned({"geo": version}), decoded(VISITS))
    assert waits == pytest.approx([0, 0.5, 0.5, 0.5, 0.5])


_TEXT = st.text(st.sampled_from("a./\\?&=%#{} é") | st.characters(codec="utf-8"), max_size=9)


@given(key=_TEXT, other_key=_TEXT)
def test_a_key_never_leads_elsewhere(key: str, other_key: str) -> None:
    """A key becomes exactly one part of the path or the query, or it isn't requested."""
    try:
        target = target_of("/v1/{a}/x?q={b}&c=1", {"a": key, "b": other_key}).decode("ascii")
    except UnaskableError:
        assert not key or {".", ".."} & set(key.replace("\\", "/").split("/"))
        return
    path, query = target.split("?")
    _, first, segment, last = path.split("/")
    assert (first, unquote(segment), last) == ("v1", key, "x")
    value, rest = query.split("&")
    assert (unquote(value), rest) == (f"q={other_key}", "c=1")


@pytest.mark.parametrize("key", ["..", ".", "", "a/../../admin", "..\\x", "x" * 9000])
def test_keys_that_are_not_asked_for(key: str, folder: Path) -> None:
    """A key that could change the path makes a dead letter, and isn't sent to the service."""
    with serving(reply_one) as service:
        rows = decoded(pa.RecordBatch.from_pydict({"ip": [key]}))
        output = apply(lookup(folder, service), rows)
        assert dead(output) == [(0, "rules", "lookup:geo:refused")]
        assert (service.requests, output.lookups[0].requests) == ([], 0)


@given(keys=st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_bodies_have_the_keys_as_they_are(keys: list[tuple[str, int]]) -> None:
    """A body has the keys in their types, in place of each text that is only a placeholder.

    The rest of the body doesn't change.
    """
    named = [{"a": a, "b": b} for a, b in keys]
    body = {"q": [{"x": "{a}", "y": [["{b}"]]}], "only": [1], "text": "a {a} b", "null": None}
    assert fill_body(body, named) == {
        "q": [{"x": a, "y": [[b]]} for a, b in keys],
        "only": [1],
        "text": "a {a} b",
        "null": None,
    }


def test_dates_and_decimals_as_keys() -> None:
    """Dates and decimals are written in an address as in JSON, with all digits."""
    key = {
        "at": datetime(2026, 1, 5, 1, tzinfo=UTC),
        "on": True,
        "d": Decimal("1.20"),
        "day": date(2026, 1, 5),
    }
    assert (
        target_of("/{at}/{on}/{d}/{day}", key) == b"/2026-01-05T01%3A00%3A00Z/true/1.20/2026-01-05"
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"http": "https://{ip}.internal/"}, "must be https://HOST/PATH"),
        ({"http": "https://user:hush@geo/{ip}"}, "must be https://HOST/PATH"),
        ({"http": "ftp://geo/{ip}"}, "must be https://HOST/PATH"),
        ({"http": "https://geo:99999/{ip}"}, "must be https://HOST/PATH"),
        ({"http": "https://geo/{ip}#x"}, "must be https://HOST/PATH"),
        ({"http": "https://geo/ä/{ip}"}, "must be https://HOST/PATH"),
        ({"http": "https://geo/{ip}?api_key=hush"}, "may be a secret in its query"),
        ({"http": "https://geo/"}, "need a {column} of the key"),
        ({"http": "https://geo/{ip}", "body": {"ips": ["{ip}"]}}, "in lists alone or nowhere"),
        ({"http": "https://geo/{ip}", "batch": 5}, "goes with a list in body"),
        ({"http": "https://geo/{ip}", "headers": {"X-Api-Key": "hush"}}, "is written out"),
        (
            {"http": "http://geo/{ip}", "headers": {"X-Api-Key": {"env": "K"}}},
            "would send a secret unencrypted",
        ),
        ({"http": "https://geo/{ip}", "headers": {"Host": "x"}}, "can't be set"),
        ({"http": "https://geo/{ip}", "token": "hush"}, "is written out"),
        ({"http": "http://geo/{ip}", "token": {"env": "T"}}, "would send a secret unencrypted"),
        (
            {
                "http": "https://geo/{ip}",
                "token": {"env": "T"},
                "headers": {"Authorization": {"env": "K"}},
            },
            "can't be set: windrow sends its own",
        ),
        ({"http": "https://geo/{ip}", "concurrency": 100}, "less than or equal to 32"),
        ({"http": "https://geo/{ip}", "timeout": "0s"}, "must be 100ms to 5m"),
        ({"http": "http://geo/{ip}", "tls": {"ca": "ca.pem"}}, "would be ignored: http must be"),
        ({"http": "https://geo/{ip}", "tls": {"key": "key.pem"}}, "goes with certificate"),
        (
            {"http": "https://geo/{ip}", "tls": {"certificate": "a", "key_password": "hush"}},
            "is written out",
        ),
        ({"http": "https://geo/{other}"}, "names other columns of the source than from"),
        ({"http": "https://geo/{ip}/{other}"}, "names other columns of the source than from"),
    ],
)
def test_mistakes_in_the_section(section: dict[str, Any], message: str) -> None:
    """A wrong section is refused when the spec is read, without values that may be secret."""
    step = {"lookup": "geo", "key": {"ip": "ip"}, "take": {"n": "n"}}
    step_section = step | {"from": {"schema": "geo.py:Place", **section}}
    with pytest.raises(ValidationError) as excinfo:
        LookupStepSection.model_validate(step_section)
    assert message in str(excinfo.value)
    assert "hush" not in str(excinfo.value)
