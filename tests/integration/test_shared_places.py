"""Several machines on one pipeline: each process has homes of its own, the ledger is on
PostgreSQL, the table in a place that all see.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.integration.harness import (
    Place,
    millis,
    verdict,
    visible,
    wait_until_stopped,
    wake_to_the_end,
)
from tests.kafka.produce import Put, create_topic, produce
from tests.warm import SERVER
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.runner.context import Result

pytestmark = pytest.mark.broker

HOURS = range(1, 7)


def drive(
    setup: Place, hours: Sequence[int], machine: Path, env: Mapping[str, str], crash: str
) -> BaseProcess:
    """Run hours one after the other in a process with homes of its own; it writes what
    it was told of each into its home.
    """
    machine.mkdir()
    homes = {"HOME": str(machine), "DAGSTER_HOME": str(machine / "dagster"), "WINDROW_CRASH": crash}
    process = SERVER.Process(target=_drive, args=(setup, list(hours), machine, {**env, **homes}))
    process.start()
    return process


def _drive(setup: Place, hours: list[int], machine: Path, env: dict[str, str]) -> None:
    os.environ.update(env)
    texts = [to_json(setup.run(n)) for n in hours]
    (machine / "told.json").write_text(json.dumps(texts))


@pytest.mark.some(1)
@pytest.mark.parametrize("where", ["folder", "s3"])
def test_two_machines_on_one_backfill(
    where: str, kafka: str, tmp_path: Path, postgres_url: str, request: pytest.FixtureRequest
) -> None:
    """Both run all hours, in the same order, and stop side by side before the first
    one's commit; then they go on.

    Each hour is committed once, by one of them, and the other shows the same receipt;
    the checker finds nothing lost and nothing twice.
    """
    place_of_table, env = str(tmp_path / "shared" / "things"), {}
    if where == "s3":
        s3 = request.getfixturevalue("s3")
        place_of_table, env = f"{s3.bucket()}/things", s3.env
    topic = create_topic(kafka, partitions=2)
    puts = [
        Put(json.dumps({"id": i, "name": f"{n}"}).encode(), millis(n, i), i % 2)
        for n in HOURS
        for i in range(40)
    ]
    produce(kafka, topic, [*puts, *(Put(b"poison", millis(n, 50), n % 2) for n in HOURS)])
    setup = Place(kafka, topic, tmp_path, {"sink": {"path": place_of_table}, "state": postgres_url})
    machines = [tmp_path / name for name in ("one", "other")]
    runs = [drive(setup, HOURS, machine, env, "commit.before:stop") for machine in machines]
    for run in runs:
        wait_until_stopped(run)
    wake_to_the_end(runs, 240)
    results = [
        [from_json(text, Result) for text in json.loads((machine / "told.json").read_text())]
        for machine in machines
    ]
    for first, second in zip(*results, strict=True):
        assert sorted((first.recovered, second.recovered)) == [False, True]
        assert first.committed.receipt == second.committed.receipt
    receipts = [c.receipt for c in setup.pipeline().sink.receipts()]
    assert [(r.window, r.generation) for r in receipts] == [(setup.window(n), 0) for n in HOURS]
    report = verdict(setup, visible(kafka, topic))
    assert report.ok, report
