"""Rows that replace each other, from real Kafka to a real table by the command, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.customers import DEBEZIUM, LEFT, MARKED, PLAIN, customers, somebody

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]


NO_KEY, NO_NAME = ("key", "key:null"), ("rules", "check:name:str_length")


@pytest.mark.parametrize(("decode", "sink", "left", "dead"), [
    (PLAIN, "mode: upsert", LEFT, [NO_KEY, NO_NAME]),
    (PLAIN, "mode: delete-aware, buckets: 3", MARKED, [NO_KEY, NO_NAME]),
    (DEBEZIUM, "mode: upsert", LEFT, [NO_NAME]),
], ids=["upsert", "delete-aware", "debezium"])  # fmt: skip
def test_the_last_word_on_each_customer(
    decode: str, sink: str, left: object, dead: list[tuple[str, str]], kafka: str, tmp_path: Path
) -> None:  # fmt: skip
    """Newer hours first, then one replayed: the table is the log's fold each time, to its last byte."""
    user = somebody(kafka, tmp_path, sink, decode)
    for hour in (3, 2, 1):
        user.types("run", "--window", f"2026-01-05T0{hour}:00:00Z")
    assert customers(tmp_path) == left
    assert user.types("verify", "--deep")["findings"] == []
    letters = user.types("dead", "show", "--window", "2026-01-05T02:00:00Z")["dead"]
    assert sorted((d["stage"], d["reason"]) for d in letters) == dead
    user.types("replay", "--window", "2026-01-05T02:00:00Z")
    assert customers(tmp_path) == left
    assert user.types("verify", "--deep")["findings"] == []
    receipts = [window["receipt"] for window in user.types("show")["windows"]]
    assert [(r["generation"], r["counts"]["rows"], r["counts"]["deletes"]) for r in receipts] == [(0, 4, 1), (1, 2, 1), (0, 2, 1)]
    assert sum(r["merged"]["rows_added"] - r["merged"]["rows_removed"] for r in receipts) == len(customers(tmp_path))
