"""A REST catalog that answers late, wrongly or not at all: a look finds what arrived, and
nothing is there twice.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.iceberg.rest import TOKEN, Server, listening, serving
from tests.sinks.iceberg.world import IcebergBoth, pieces
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.model.codec import to_json
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks.iceberg import catalogs
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.file_io import SyncedFileIO
from windrow.ingest.testing.contracts.windows import ROWS, run_together, staged_receipt, window

# PyIceberg's HTTP session stays open
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server of a REST catalog, and its address."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with serving(tmp_path) as both:
        yield both


def sink_of(url: str) -> IcebergBoth:
    """Returns a sink that tries twice more without waits."""
    sink = IcebergBoth(
        CatalogTable.in_catalog("shop.orders", {"type": "rest", "uri": url, "token": TOKEN}), ROWS
    )
    sink.store.waits = (0.0, 0.0)
    return sink


@pytest.fixture
def sink(rest: tuple[Server, str]) -> IcebergBoth:
    """A prepared table."""
    sink = sink_of(rest[1])
    sink.prepare()
    return sink


def ids(sink: IcebergBoth) -> list[str]:
    return sorted(i for piece in pieces(sink) for i in piece["id"].to_pylist())


@pytest.mark.some(4)
@pytest.mark.parametrize("status", [500, 502, 503, 504, 409, 401, 418])
@pytest.mark.parametrize("arrives", [True, False])
def test_whatever_a_commit_is_answered_with(
    rest: tuple[Server, str], sink: IcebergBoth, status: int, arrives: bool
) -> None:
    """A commit is in the table once, whatever the answer was, and no file of a taken commit is
    removed.
    """
    rest[0].faults[:] = [(arrives, status)]
    outcome = sink.commit(*staged_receipt(sink, 0, dead=False))
    assert isinstance(outcome, Done)
    # PyIceberg itself repeats a request after status 401
    assert rest[0].commits == (1 if arrives and status != 401 else 2)
    assert len(ids(sink)) == 20
    assert isinstance(
        sink_of(rest[1]).commit(*staged_receipt(sink, 0, 0, "again", dead=False)), AlreadyDone
    )


def test_an_outcome_that_stays_unknown(rest: tuple[Server, str], sink: IcebergBoth) -> None:
    """A commit whose outcome stays unknown after all tries returns Unknown.

    The next run of the window looks, and commits it.
    """
    rest[0].faults[:] = [(False, 503)] * 3
    outcome = sink.commit(*staged_receipt(sink, 0, dead=False))
    assert isinstance(outcome, Unknown)
    assert TOKEN not in outcome.reason
    assert isinstance(sink.commit(*staged_receipt(sink, 0, 0, "again", dead=False)), Done)
    assert len(ids(sink)) == 20


def test_racers_agree(rest: tuple[Server, str], sink: IcebergBoth) -> None:
    """Of four runs of one window one commits. Runs of different windows all arrive."""
    sinks_of = [sink_of(rest[1]) for _ in range(4)]
    same = [
        (racer, *staged_receipt(racer, 0, 0, f"racer {n}", dead=False))
        for n, racer in enumerate(sinks_of)
    ]
    outcomes = run_together(
        [
            lambda racer=racer, receipt=receipt, files=files: racer.commit(receipt, files)
            for racer, receipt, files in same
        ]
    )
    assert sorted(type(o).__name__ for o in outcomes) == ["AlreadyDone"] * 3 + ["Done"]
    later_windows = [
        (racer, *staged_receipt(racer, n + 1, dead=False)) for n, racer in enumerate(sinks_of)
    ]
    run_together(
        [
            lambda racer=racer, receipt=receipt, files=files: racer.commit(receipt, files)
            for racer, receipt, files in later_windows
        ]
    )
    assert len(ids(sink)) == len(set(ids(sink))) == 100


def test_no_secret_is_kept(
    rest: tuple[Server, str], sink: IcebergBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token isn't in identity, receipts, plans, errors, or the stager's repr."""
    monkeypatch.setattr(catalogs, "STORE_WAITS", (0.0,))
    receipt, staged = staged_receipt(sink, 0)
    outcome: Any = sink.commit(receipt, staged)
    texts = [
        sink.identity,
        to_json(receipt),
        to_json(outcome.committed.receipt),
        repr(sink.stager(receipt.plan, 0, "a1")),
    ]
    wrong_sink = IcebergBoth(
        CatalogTable.in_catalog(
            "shop.orders", {"type": "rest", "uri": rest[1], "token": "wrong-" + TOKEN}
        ),
        ROWS,
    )
    with pytest.raises(UnreachableError) as refused:
        wrong_sink.look(window(0))
    assert TOKEN not in " ".join([*texts, str(refused.value)])


def test_a_catalog_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that doesn't answer raises UnreachableError with its address, after a few tries."""
    monkeypatch.setattr(catalogs, "STORE_WAITS", (0.0,))
    with pytest.raises(
        UnreachableError, match=r"the Iceberg catalog http://127\.0\.0\.1:9 can't be reached"
    ):
        sink_of("http://127.0.0.1:9").refuse_unwritable()


@pytest.mark.parametrize("body", [b"<html>We are sorry</html>", b'{"defaults": 7}', b""])
def test_a_catalog_that_answers_something_else(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """A proxy's page instead of an answer raises UnreachableError, not SpecError."""
    monkeypatch.setattr(catalogs, "STORE_WAITS", (0.0,))

    def page(_environment: object, start: Any) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/html")])
        return [body]

    with listening(page) as url, pytest.raises(UnreachableError, match="can't be reached"):
        sink_of(url).look(window(0))


EVIL = "evil_module.Code"
CODE: dict[str, dict[str, Any]] = {
    "file access": {"settings": {"overrides": {"py-io-impl": EVIL}}},
    "login": {"settings": {"overrides": {"auth": {"type": "custom", "impl": EVIL, "custom": {}}}}},
    "retries": {"settings": {"overrides": {"s3.retry-strategy-impl": EVIL}}},
    "file access of a table": {"config": {"py-io-impl": EVIL}},
    "file access by a property": {"table_properties": {"py-io-impl": EVIL}},
    "retries by a property": {"table_properties": {"s3.retry-strategy-impl": EVIL}},
}
"""Answers of a catalog that name code."""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that could be imported; it must not be loaded by the end of the test."""
    (tmp_path / "evil_module.py").write_text("Code = dict")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil_module", raising=False)
    yield
    assert "evil_module" not in sys.modules


@pytest.mark.usefixtures("evil")
@pytest.mark.parametrize("answer", CODE)
def test_a_catalog_that_names_code(rest: tuple[Server, str], answer: str) -> None:
    """A catalog's answers can't make windrow import a module. Its table is written as ever."""
    for name, properties in CODE[answer].items():
        setattr(rest[0], name, properties)
    sink = sink_of(rest[1])
    sink.prepare()
    assert isinstance(sink.commit(*staged_receipt(sink, 0, dead=False)), Done)
    opened = catalogs.open_catalog(sink.catalog_table).load_table("shop.orders").io
    assert isinstance(opened, SyncedFileIO)
    assert "s3.retry-strategy-impl" not in opened.properties


@pytest.mark.usefixtures("evil")
def test_a_table_whose_property_names_code(rest: tuple[Server, str], sink: IcebergBoth) -> None:
    """A table whose property names code for its commits is refused, by any catalog."""
    rest[0].table_properties = {"write.py-location-provider.impl": EVIL}
    with pytest.raises(RefusedError, match=r"py-location-provider\.impl") as refused:
        sink.look(window(0))
    assert "Remove this property" in refused.value.advice


def test_a_catalog_that_sends_its_users_elsewhere(rest: tuple[Server, str], tmp_path: Path) -> None:
    """A catalog can't name another address, nor choose what a provider of tokens is asked."""
    rest[0].settings = {
        "overrides": {"oauth2-server-uri": "http://127.0.0.1:9/", "scope": "all", "prefix": ""}
    }
    assert catalogs.open_catalog(sink_of(rest[1]).catalog_table).properties == {
        "type": "rest",
        "uri": rest[1],
        "token": TOKEN,
        "prefix": "",
        "py-io-impl": "windrow.ingest.sinks.iceberg.file_io.SyncedFileIO",
    }
    with serving(tmp_path) as (server, url):
        server.settings = {"overrides": {"uri": "http://127.0.0.1:9/"}}
        with pytest.raises(SpecError, match=r"http://127\.0\.0\.1:9/: write that as uri"):
            sink_of(url).look(window(0))
