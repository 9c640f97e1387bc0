"""The job that maintains a table in Dagster, and its schedule."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Stage, hour
from tests.cli.conftest import stage as stage  # noqa: PLC0414  the fixture
from windrow.assets.factory import kafka_table
from windrow.ingest.config.load import load_spec


def test_the_job_maintains_the_table(stage: Stage) -> None:
    """With `maintain.schedule` there is a job, which does what the command does."""
    stage.json("run", stage.spec, "--window", hour(0))
    spec = Path(stage.spec)
    spec.write_text(spec.read_text() + 'maintain: {schedule: "0 3 * * *"}\n')
    definitions = kafka_table(load_spec(spec))
    schedule = definitions.resolve_schedule_def("things_maintenance")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 3 * * *", "UTC")
    job = definitions.resolve_job_def("things_maintenance")
    assert job.execute_in_process().success
    assert stage.json("maintain", stage.spec)["maintained"]["joined_files"] == 0
    stage.write()
    names = {s.name for s in kafka_table(load_spec(Path(stage.spec))).schedules or ()}
    assert names == {"things_closed", "things_topics"}
