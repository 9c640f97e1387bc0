"""The section `dagster`: its values, and the messages about mistakes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from yaml import safe_load

from tests.config.test_window import attributes
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import SpecError

HOURLY = {"grid": "hourly", "start": "2026-01-05T00:00:00Z"}
DAILY = {"grid": "daily", "start": "2026-01-05T00:00:00Z"}
QUARTERS = {"grid": "*/15 * * * *", "start": "2026-01-05T00:00:00Z"}


def mistakes(folder: Path, block: Any, window: dict[str, Any] = HOURLY) -> list[str]:
    """Returns the mistakes of the section, each as `place: message`."""
    with pytest.raises(SpecError) as caught:
        parse_spec({**attributes(window), "dagster": block}, folder)
    return [line.strip() for line in str(caught.value).splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("key: /payments", "dagster.key: must be an asset key: parts of"),
        ("key: bank//payments", "dagster.key: must be an asset key"),
        ("key: bank/pay ments", "dagster.key: must be an asset key"),
        ("key: ['bank', 'payments']", "dagster.key: must be a"),
        ("group_name: a b", "dagster.group_name: must be a group's name"),
        ("group_name: ''", "dagster.group_name: must"),
        ("owners: ['payments']", "dagster.owners.0: must be an e-mail address, or team:NAME"),
        ("owners: ['team:']", "dagster.owners.0: must be an e-mail address, or team:NAME"),
        ("owners: ['a@b.c.']", "dagster.owners.0: must be an e-mail address, or team:NAME"),
        ("owners: team:payments", "dagster.owners: must be a"),
        ("tags: {'a b': c}", "dagster.tags.a b: must be 1 to 63 of"),
        ("tags: {dagster/kind/x: ''}", "dagster.tags.dagster/kind/x: must be 1 to 63 of"),
        ("tags: {a: 'b c'}", "dagster.tags.a: must be up to 63 of"),
        ("tags: {a: true}", "dagster.tags.a: must be a text: put it in quotes"),
        ("kinds: []", "dagster.kinds: "),
        ("kinds: [a b]", "dagster.kinds.0: must be 1 to 63 of"),
        (f"kinds: [{','.join('abcdefghijk')}]", "dagster.kinds: "),
        ("pool: a b", "dagster.pool: must not have spaces"),
        ("max_partitions_per_run: 0", "dagster.max_partitions_per_run: must be"),
        ("max_partitions_per_run: 1.5", "dagster.max_partitions_per_run: must be a whole number"),
        ("retries: -1", "dagster.retries: must be"),
        ("retries: 11", "dagster.retries: must be"),
        ("retry_wait: soon", "dagster.retry_wait: must be a duration"),
        ("freshness_policy: {}", "dagster.freshness_policy: set fail_window, or deadline_cron"),
        (
            (
                "freshness_policy: {fail_window: 2h, deadline_cron: '0 * * * *', lower_bound_delta:"
                " 1h}"
            ),
            "dagster.freshness_policy: set fail_window, or deadline_cron",
        ),
        (
            "freshness_policy: {fail_window: 30s}",
            "freshness_policy.fail_window: must be at least 1m",
        ),
        (
            "freshness_policy: {fail_window: 2h, warn_window: 2h}",
            "freshness_policy.warn_window: must be shorter than fail_window",
        ),
        (
            "freshness_policy: {deadline_cron: '0 * * * *'}",
            "freshness_policy.lower_bound_delta: is missing",
        ),
        (
            "freshness_policy: {deadline_cron: '0 * * * *', lower_bound_delta: 70m}",
            (
                "freshness_policy.lower_bound_delta: must not be longer than the shortest time"
                " between two deadlines, 1:00:00"
            ),
        ),
        (
            "freshness_policy: {deadline_cron: '50,55 * * * *', lower_bound_delta: 6m}",
            "between two deadlines, 0:05:00",
        ),
        ("freshness_policy: {deadline_cron: hourly, lower_bound_delta: 1h}", "must be a cron"),
        ("automation_condition: on_missing", "must be eager, or a cron expression"),
        ("automation_condition: hourly", "must be eager, or a cron expression"),
        (
            "automation_condition: '0 * * * *'",
            "would ask at 2024-01-01T00:00:00Z for a window that is not closed yet",
        ),
        ("spark: {connect: '127.0.0.1:15002'}", "dagster.spark.connect: must be sc://HOST:PORT"),
        ("spark: {connect: 'sc://h:1', master: 'local[2]'}", "connect: excludes master and conf"),
        ("spark: {master: 'local[x]'}", "dagster.spark.master: must be local, local[4]"),
        (
            "spark: {conf: {spark.password: [hunter2]}}",
            "dagster.spark.conf.spark.password: must be",
        ),
        ("colour: red", "dagster.colour: unknown key"),
        ("group: bank", "dagster.group: unknown key; did you mean group_name?"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, written: str, message: str) -> None:
    """A wrong value is reported with its place and what it must be; values of Spark
    aren't shown.
    """
    [mistake] = mistakes(tmp_path, safe_load(written))
    assert message in mistake
    assert "hunter2" not in mistake


def test_automation_is_for_windows_that_it_can_ask_for(tmp_path: Path) -> None:
    """Automation is refused for micro-batches, and if a window closes only after the next one
    ended.

    Parts of backfills are refused for micro-batches, too. A cron expression must not ask before
    a window closes.
    """
    block = {"automation_condition": "eager", "max_partitions_per_run": 3}
    messages = mistakes(tmp_path, block, {"grid": "batch"})
    assert [message.split(": is for windows in time")[0] for message in messages] == [
        f"dagster.{name}" for name in block
    ]
    [mistake] = mistakes(tmp_path, {"automation_condition": "eager"}, {**QUARTERS, "delay": "15m"})
    assert "must not be eager if window.delay is as long as a window" in mistake
    late = {**DAILY, "delay": "6h"}
    assert mistakes(tmp_path, {"automation_condition": "0 5 * * *"}, late)
    spec = parse_spec(
        {**attributes(late), "dagster": {"automation_condition": "0 6 * * *"}}, tmp_path
    )
    assert spec.dagster.automation_condition == "0 6 * * *"


def test_what_is_left_out(tmp_path: Path) -> None:
    """Without the section, a run has two retries, the first one after ten seconds."""
    block = parse_spec(attributes(HOURLY), tmp_path).dagster
    assert (block.retries, block.retry_wait) == (2, timedelta(seconds=10))
    assert (block.key, block.pool, block.kinds, block.spark.connect) == (None, None, None, None)
