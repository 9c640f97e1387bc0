"""The names of a table's parts: identities never collide, whatever pipelines and attempts are called."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.things import ROWS, plan
from windrow.ingest.model.label import Label, label_text
from windrow.ingest.model.window import Window
from windrow.ingest.sinks.delta.names import app_id, dead_app, fingerprint, parse_receipt_name, receipt_name, safe, staged_path
from windrow.ingest.testing.sink import MemorySink

TEXT = st.text(max_size=20) | st.sampled_from(["a", "a.b", "a_b", "a/b", 'a","b', "A", "ä"])
STARTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone


@given(TEXT, TEXT, TEXT, TEXT)
def test_application_ids_are_injective(a: str, b: str, c: str, d: str) -> None:
    """Two identities never share an id, whatever their parts look like."""
    assert (app_id("dead", a, b) == app_id("dead", c, d)) == ((a, b) == (c, d))
    assert app_id("window", a, b) != app_id("receipt", a, b) != app_id("window", a)


@given(TEXT, TEXT)
def test_file_name_parts_are_injective_and_plain(a: str, b: str) -> None:
    """Two texts never become one name part, and none needs escaping."""
    assert (safe(a) == safe(b)) == (a == b)
    assert safe(a).replace("-", "").replace("_", "").isalnum()
    assert safe(a).isascii()


@given(STARTS | st.integers(0, 10**9), TEXT, st.integers(0, 10**6), st.binary(max_size=50))
def test_a_receipt_name_says_what_it_was_made_from(start: Label, pipeline: str, generation: int, content: bytes) -> None:
    """Window, of time or a micro-batch, pipeline and fingerprint come back out of the name; a fingerprint fits an application version."""
    window = Window(pipeline, start, start + 1 if isinstance(start, int) else start + timedelta(hours=1))
    parsed = parse_receipt_name(receipt_name(window, generation, content))
    assert parsed is not None
    assert (parsed.key, parsed.pipeline, parsed.fingerprint) == (window.key, safe(pipeline), fingerprint(content))
    assert 0 <= parsed.fingerprint < 2**63


@pytest.mark.parametrize("name", ["", "a.json", "x.tmp", "2026-01-02T03_00_00Z.0.orders-00.zz.json"])
def test_other_files_are_no_receipts(name: str) -> None:
    """What else lies in the folder is not taken for a receipt."""
    assert parse_receipt_name(name) is None


@given(STARTS | st.integers(0, 10**9))
def test_a_staged_path_needs_no_escaping(start: Label) -> None:
    """Whatever the window, its folder's name is plain."""
    assert re.fullmatch(r"data/[A-Za-z0-9.]+/[A-Za-z0-9_-]+\.parquet", staged_path(label_text(start), "a/1"))


def test_attempts_have_dead_letters_of_their_own() -> None:
    """Two attempts at a window both commit theirs."""
    window = plan(MemorySink("m", ROWS), 0).window
    assert dead_app(window, "a1") != dead_app(window, "a2")
