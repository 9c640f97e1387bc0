"""A server's workers stay while no client asks for tasks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.runner.spark.servers import ROOT

_SERVER = """
import json, os, queue
from contextlib import closing
import pyarrow as pa
from windrow.ingest.runner.spark import server as of_server
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.server import spark_server

stirred, run_empty_task = queue.Queue(), of_server.run_empty_task
of_server.run_empty_task = lambda session: stirred.put(run_empty_task(session))
of_server.EVERY = 0.05

def own(batches):
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"id": [os.getpid()]})

with spark_server("127.0.0.1", 0, {}, "local[1]") as server, closing(ConnectedSpark(server.address)) as client:
    ask = lambda: client.session().range(0, 1, 1, 1).mapInArrow(own, "id long").collect()[0]["id"]
    first = ask()
    kept = [stirred.get(timeout=60) for _ in range(3)]
    print(json.dumps({"kept": kept, "clients": [first, ask()]}))
"""  # noqa: E501
"""A script of a server that keeps its workers every 0.05 seconds, prints their process ids, and
has a client.
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_server_keeps_the_workers_of_its_clients() -> None:
    """A server's own small tasks run in the workers of its clients, and so keep them.

    Spark ends workers a minute after the last task of their kind.
    """
    ran = subprocess.run(
        [sys.executable, "-c", _SERVER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=180,
        check=True,
    )
    pids_by_kind = json.loads(ran.stdout.splitlines()[-1])
    assert len({*pids_by_kind["kept"], *pids_by_kind["clients"]}) == 1
