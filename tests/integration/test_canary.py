"""A password that a spec refers to leaves no trace in what a run writes, shows or sends."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.canary import SHOWN, WRONG
from tests.integration.harness import PipelineSetup, millis
from tests.kafka.produce import Put, create_topic, produce
from tests.kafka.secure import PASSWORD, SecureBroker, client
from tests.runner.spark.standalone import Cluster, cluster
from windrow.ingest.kafka.embedded.server import find_jars

WRITTEN = "{{ env.CANARY_PASSWORD }}"
"""A password that the driver fills in, so that it is in the sent task.

A spec with the password itself would be refused.
"""

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
HOUR = "2026-01-05T01:00:00Z"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure"), find_jars()) as server:
        assert isinstance(server, SecureBroker)
        yield server


def spec(server: SecureBroker, folder: Path, password: object) -> list[str]:
    """Makes a spec with its own topic and returns the arguments of the run."""
    topic = create_topic(server.bootstrap)
    produce(
        server.bootstrap,
        topic,
        [Put(json.dumps({"id": n, "name": "x"}).encode(), millis(1, n)) for n in range(20)],
    )
    produce(server.bootstrap, topic, [Put(b"{}", millis(3))])
    setup = PipelineSetup(server.secure, topic, folder)
    attributes: dict[str, Any] = {
        "id": "things",
        "source": {"bootstrap_servers": server.secure, "topic": topic, "client": client(password)},
        "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z", "delay": "1m"},
        "decode": {"schema": "things.py:Thing"},
        "sink": {"kind": "delta", "path": "things"},
        "state": str(setup.folder / "state.db"),
    }
    (folder / "things.py").write_text((Path(__file__).parent / "things.py").read_text())
    (folder / "spec.yaml").write_text(json.dumps(attributes))
    return [str(folder / "spec.yaml"), HOUR, str(folder / "out")]


def run_output(words: list[str], extra_env: dict[str, str]) -> bytes:
    """Returns everything that the run left, showed, sent and printed, without the password file."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.canary", *words],
        cwd=ROOT,
        env={**os.environ, **extra_env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder = Path(words[0]).parent
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "password"]
    content_by_path = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    assert {
        "out/said",
        "out/job",
        "out/conf",
        "out/processes",
        "state.db",
    } <= content_by_path.keys()
    assert {f"out/ui-{name.replace('/', '-')}" for name in SHOWN} <= content_by_path.keys()
    assert any(name.startswith("out/events/") for name in content_by_path), content_by_path.keys()
    assert b"KafkaReader" in content_by_path["out/job"]
    return b"\n".join([*content_by_path.values(), done.stdout, done.stderr])


def contents_of(spark_cluster: Cluster) -> bytes:
    """Returns the pages of a cluster's master and workers, and all files in their folders.

    The files are logs, the executors' output and code.
    """
    [worker_folder, *_] = spark_cluster.workers
    pages = [
        re.findall(r"UI started at (http://\S+)|at (http://\S+:\d+)", log.read_text())
        for log in worker_folder.parent.rglob("*.log")
    ]
    shown = []
    for url in {url for matches in pages for pair in matches for url in pair if url}:
        for page in ("", "/json/"):
            with urllib.request.urlopen(url + page, timeout=30) as response:
                shown.append(response.read())
    assert len(shown) >= 6, "a page of the master or of a worker wasn't looked at"
    readable_files = [
        path
        for path in worker_folder.parent.rglob("*")
        if path.is_file() and not path.is_symlink() and "site-packages" not in path.parts
    ]
    assert [path for path in readable_files if path.name == "stderr"], "no executor said anything"
    return b"\n".join([*shown, *(path.read_bytes() for path in readable_files)])


def spellings_of(secret: str) -> list[bytes]:
    """Returns the encodings of a secret: plain, UTF-16, and base64 at each alignment."""
    coded = [
        base64.b64encode(b" " * padding + secret.encode())[4 * bool(padding) : -4]
        for padding in range(3)
    ]
    return [secret.encode(), secret.encode("utf-16-le"), *coded]


def spellings_in(secret: str, text: bytes) -> list[bytes]:
    return [spelling for spelling in spellings_of(secret) if spelling in text]


@pytest.mark.long
def test_a_run_that_succeeds(server: SecureBroker, tmp_path: Path) -> None:
    """A password in the environment is in no trace of a run that succeeds.

    The workers log in with it. The traces are Spark's settings, event log, pages, files and
    command lines.
    """
    everything = run_output(
        spec(server, tmp_path, {"env": "CANARY_PASSWORD"}), {"CANARY_PASSWORD": PASSWORD}
    )
    assert "valid=20," in (tmp_path / "out" / "said").read_text()
    assert spellings_in(PASSWORD, everything) == []


@pytest.mark.long
def test_a_run_that_fails_in_its_workers(server: SecureBroker, tmp_path: Path) -> None:
    """A password in a file is in no trace of a run that fails in its workers.

    The file changes before the workers read it, so the broker refuses them. Neither password is
    in a trace.
    """
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    everything = run_output(
        [*spec(server, tmp_path, {"file": str(file)}), "--spoil", str(file)], {}
    )
    assert "refuses to let this client read" in (tmp_path / "out" / "said").read_text()
    assert file.read_text().endswith(WRONG)
    assert spellings_in(PASSWORD, everything) == []


@pytest.mark.long
def test_the_search_finds_what_is_there(server: SecureBroker, tmp_path: Path) -> None:
    """The search finds a password that is written in the spec and travels with the task.

    This proves that the search works.
    """
    everything = run_output(spec(server, tmp_path, WRITTEN), {"CANARY_PASSWORD": PASSWORD})
    assert spellings_in(PASSWORD, (tmp_path / "out" / "job").read_bytes()) == [PASSWORD.encode()]
    assert spellings_in(PASSWORD, everything)


# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with one core each and without windrow."""
    with cluster(tmp_path_factory.mktemp("cluster")) as spark_cluster:
        yield spark_cluster


def words_of(spark_cluster: Cluster) -> list[str]:
    """Returns the arguments that describe a cluster to the run."""
    return [
        "--master",
        spark_cluster.master,
        *(
            word
            for process in spark_cluster.workers.values()
            for word in ("--worker", str(process.pid))
        ),
    ]


@pytest.mark.long
@pytest.mark.parametrize("fails", [False, True])
def test_a_run_on_a_cluster(
    server: SecureBroker, workers: Cluster, tmp_path: Path, fails: bool
) -> None:
    """A password in a file is in nothing that a cluster's workers receive, print, show or keep.

    The broker accepts the workers, or refuses them.
    """
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    more = ["--spoil", str(file)] if fails else []
    everything = run_output(
        [*spec(server, tmp_path, {"file": str(file)}), *words_of(workers), *more], {}
    ) + contents_of(workers)
    assert ("refuses to let this client read" if fails else "valid=20,") in (
        tmp_path / "out" / "said"
    ).read_text()
    assert (tmp_path / "out" / "environments").read_text().count("SPARK_") > 1, (
        "no executor was looked at"
    )
    assert spellings_in(PASSWORD, everything) == []


@pytest.mark.long
def test_the_search_on_a_cluster_finds_what_is_there(
    server: SecureBroker, workers: Cluster, tmp_path: Path
) -> None:
    """The search on a cluster finds a password that is written in the spec, in the sent job.

    This proves that the search works.
    """
    run_output(
        [*spec(server, tmp_path, WRITTEN), *words_of(workers)], {"CANARY_PASSWORD": PASSWORD}
    )
    assert spellings_in(PASSWORD, (tmp_path / "out" / "job").read_bytes())
