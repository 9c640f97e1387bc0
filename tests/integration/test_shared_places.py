"""Several machines on one pipeline, with the ledger on PostgreSQL and a shared table.

Each process has its own home folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.integration.harness import (
    PipelineSetup,
    millis,
    read_visible,
    verdict,
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
    setup: PipelineSetup, hours: Sequence[int], machine: Path, env: Mapping[str, str], crash: str
) -> BaseProcess:
    """Starts a process with its own home folders that runs hours in sequence.

    It writes the result of each hour into its home folder.
    """
    machine.mkdir()
    homes = {"HOME": str(machine), "DAGSTER_HOME": str(machine / "dagster"), "WINDROW_CRASH": crash}
    process = SERVER.Process(target=_drive, args=(setup, list(hours), machine, {**env, **homes}))
    process.start()
    return process


def _drive(setup: PipelineSetup, hours: list[int], machine: Path, env: dict[str, str]) -> None:
    os.environ.update(env)
    texts = [to_json(setup.run(n)) for n in hours]
    (machine / "told.json").write_text(json.dumps(texts))


@pytest.mark.some(1)
@pytest.mark.parametrize("where", ["folder", "s3"])
def test_two_machines_on_one_backfill(
    where: str, kafka: str, tmp_path: Path, postgres_url: str, request: pytest.FixtureRequest
) -> None:
    """Two machines that run the same backfill commit each hour once.

    1. Both run all hours in the same order and stop before the first commit.
    2. Both wake and go on.
    3. Each hour is committed by one of them, and both report the same receipt.
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
    setup = PipelineSetup(
        kafka, topic, tmp_path, {"sink": {"path": place_of_table}, "state": postgres_url}
    )
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
    report = verdict(setup, read_visible(kafka, topic))
    assert report.ok, report
