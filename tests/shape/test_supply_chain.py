"""Tests of the bill of materials and of the question for known vulnerabilities."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from packaging.requirements import Requirement

from tests.supply_chain import ROOT, audit, jar_components, pinned_project
from windrow.ingest.kafka.embedded.server import KAFKA, find_jars

LOCK = """\
version = 1
requires-python = ">=3.11"

[[package]]
name = "{name}"
version = "1.0"
source = {{ registry = "{url}/simple" }}
wheels = [{{ url = "{url}/{name}-1.0-py3-none-any.whl", hash = "sha256:{digest}" }}]

[[package]]
name = "shop"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "{name}" }}]
"""
"""A uv.lock of a project with a single package."""


class Osv(BaseHTTPRequestHandler):
    """A server that answers as OSV does: the package `leaky` has one vulnerability."""

    def do_POST(self) -> None:
        """Answers which packages have vulnerabilities."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        known = {"vulns": [{"id": "GHSA-1", "modified": "2026-01-01T00:00:00Z"}]}
        results = [known if query["package"]["name"] == "leaky" else {} for query in asked]
        self.send({"results": results})

    def do_GET(self) -> None:
        """Answers what the vulnerability is."""
        if self.path.endswith("/GHSA-1"):
            self.send({"id": "GHSA-1", "modified": "2026-01-01T00:00:00Z", "summary": "It leaks"})
        else:
            self.send_error(404)

    def send(self, answer: object) -> None:
        """Sends JSON."""
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Writes nothing."""


@contextmanager
def osv() -> Iterator[str]:
    """Runs the server; its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(("name", "exit_code"), [("leaky", 1), ("tight", 0)])
def test_audit_fails_on_a_known_vulnerability(
    tmp_path: Path, name: str, exit_code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """The audit prints a package's known vulnerability and has exit code 1, otherwise 0."""
    project = f'[project]\nname = "shop"\nversion = "1"\ndependencies = ["{name}"]\n'
    (tmp_path / "pyproject.toml").write_text(project + 'requires-python = ">=3.11"\n')
    with osv() as url:
        lock = LOCK.format(name=name, url=url, digest="0" * 64)
        (tmp_path / "uv.lock").write_text(lock)
        assert audit(tmp_path, "--no-cache", "--service-url", url) == exit_code
    assert ("GHSA-1: It leaks" in capfd.readouterr().out) is bool(exit_code)


def test_uv_is_told_each_version_of_the_lock() -> None:
    """The project that is audited has each line of requirements.lock as a constraint."""
    project = tomllib.loads(pinned_project())
    pins = [Requirement(line) for line in project["tool"]["uv"]["constraint-dependencies"]]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert [f"{pin.name}{pin.specifier}" for pin in pins] == re.findall(
        r"^[\w.-]+==[^ ]+", lock, re.MULTILINE
    )


def test_bill_of_materials_has_kafkas_jars() -> None:
    """The bill of materials has each of Kafka's jars, with the coordinates and the hash."""
    jars = {f"{jar['name']}-{jar['version']}.jar": jar for jar in jar_components()}
    assert set(jars) == {path.name for path in find_jars().iterdir()}
    clients = jars[f"kafka-clients-{KAFKA}.jar"]
    assert clients["purl"] == f"pkg:maven/org.apache.kafka/kafka-clients@{KAFKA}?type=jar"
    jar = (find_jars() / f"kafka-clients-{KAFKA}.jar").read_bytes()
    assert clients["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(jar).hexdigest()}]
