"""Identities never collide; decisions hold for any ranges."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ingest.errors import OverlapError
from ingest.model.label import Label, label_text
from ingest.model.window import Window
from ingest.sinks.decision import adjacent, refuse_overlap
from ingest.sinks.delta.names import app_id, dead_app, fingerprint, parse_receipt_name, receipt_name, safe, staged_path
from ingest.testing.sink import MemorySink
from tests.sinks.delta.things import PER_WINDOW, ROWS, TOPIC, plan, plan_of, receipt, window

TEXT = st.text(max_size=20) | st.sampled_from(["a", "a.b", "a_b", "a/b", 'a","b', "A", "ä"])
AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
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


@pytest.mark.parametrize(
    ("grid", "start", "end", "expected"),
    [
        ("hourly", AT, AT + timedelta(hours=1), ("2026-01-02T02:00:00Z", "2026-01-02T04:00:00Z")),
        ("0 0,3 * * *", AT, AT + timedelta(hours=21), ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z")),
        ("batch", 0, 1, (None, "batch-000000001")),
        ("batch", 7, 8, ("batch-000000006", "batch-000000008")),
    ],
)
def test_the_windows_beside(grid: str, start: Label, end: Label, expected: tuple[str | None, str]) -> None:
    """The grid says which window lies before; the one after starts where this one ends."""
    planned = plan_of(MemorySink("m", ROWS), Window("orders", start, end), (0, 1))
    assert adjacent(receipt(planned, [], 0, "a", grid=grid)) == expected


def test_attempts_have_dead_letters_of_their_own() -> None:
    """Two attempts at a window both commit theirs."""
    window = plan(MemorySink("m", ROWS), 0).window
    assert dead_app(window, "a1") != dead_app(window, "a2")


@given(st.tuples(st.integers(0, 40), st.integers(1, 20)), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=4))
def test_overlaps_are_refused_exactly_where_offsets_are_shared(mine: tuple[int, int], others: list[tuple[int, int]]) -> None:
    """A plan is refused if and only if some offset of it lies in another window's range."""
    sink = MemorySink("m", ROWS)
    planned = plan(sink, 0, offsets=(mine[0], sum(mine)))
    receipts = [receipt(plan(sink, n + 1, offsets=(low, low + size)), [], 0, "a") for n, (low, size) in enumerate(others)]
    shared = any(set(range(mine[0], sum(mine))) & set(range(low, low + size)) for low, size in others)
    if not shared:
        refuse_overlap(planned, receipts)
        return
    with pytest.raises(OverlapError) as refused:
        refuse_overlap(planned, receipts)
    assert refused.value.offset is not None
    assert mine[0] <= refused.value.offset < sum(mine)
    assert any(r.window.key in str(refused.value) for r in receipts)


def test_the_windows_own_receipt_is_no_overlap() -> None:
    """A replacement covers the same offsets as what it replaces; offsets of another topic id are others."""
    sink = MemorySink("m", ROWS)
    planned = plan(sink, 0)
    refuse_overlap(planned, [receipt(planned, [], 0, "a")])
    anew = replace(TOPIC, topic_id="made anew")
    refuse_overlap(plan_of(sink, window(1), (0, PER_WINDOW), [anew]), [receipt(planned, [], 0, "a")])
    with pytest.raises(OverlapError):
        refuse_overlap(plan_of(sink, window(1), (0, PER_WINDOW), [TOPIC]), [receipt(planned, [], 0, "a")])
