"""Each client that speaks HTTP has a test in which its server is hostile.

Libraries that make their own requests (deltalake, PyIceberg, librdkafka) aren't among them.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = {"boto3", "http.client", "httpcore2", "httpx2", "requests", "urllib.request", "urllib3"}

CLIENTS = {
    "ingest/http_timeouts.py": ("lookups/test_http.py", "test_a_slow_answer_ends"),
    "ingest/lookups/http/client.py": ("lookups/test_http.py", "test_a_slow_answer_ends"),
    "ingest/observers/prometheus.py": (
        "cli/test_metrics.py",
        "test_a_gateway_whose_answer_has_no_end",
    ),
    "ingest/registry/client.py": ("registry/test_client.py", "test_an_answer_without_end"),
    "ingest/registry/sessions.py": ("registry/test_logins.py", "test_a_hostile_provider"),
    "ingest/sinks/kit/files/put_if_absent.py": (
        "sinks/kit/files/test_s3.py",
        "test_a_store_that_never_answers_leaves_the_outcome_unknown",
    ),
}
"""The modules that load a library of HTTP, each with the test of its server's worst answers."""


def imported(source: str) -> set[str]:
    """Returns the names of the modules that a module imports anywhere."""
    nodes = list(ast.walk(ast.parse(source)))
    return {
        name
        for node in nodes
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }


def test_each_client_has_a_hostile_server() -> None:
    """A module that begins to load a library of HTTP needs an entry in the table."""
    modules = {
        str(file.relative_to(ROOT))
        for folder in ("ingest", "assets", "resources", "airflow")
        for file in (ROOT / folder).rglob("*.py")
        if imported(file.read_text(encoding="utf-8")) & LIBRARIES
    }
    assert modules == set(CLIENTS)


def test_the_tests_are_there() -> None:
    """Each entry of the table names a test that exists."""
    for file, name in CLIENTS.values():
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
