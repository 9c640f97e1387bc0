"""A REST catalog that answers late, wrongly or not at all: a look finds what arrived, and
nothing is there twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.iceberg.rest import TOKEN, Server, listening, serving
from tests.sinks.iceberg.world import IcebergBoth, pieces
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.codec import to_json
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks.iceberg import catalogs
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
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
