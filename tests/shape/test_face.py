"""The public names of `windrow`: the list, the cost of their import, and their page's example."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import windrow
from tests.cli.conftest import Stage, stage
from tests.shape.readme import blocks

__all__ = ["stage"]  # the fixture

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
NAMES = {
    "BugError",
    "Chosen",
    "Committed",
    "DeadReplayRequest",
    "DeadReplayResult",
    "NotClosedError",
    "PassedOver",
    "Pipeline",
    "PipelineSpec",
    "Plan",
    "Receipt",
    "RefusedError",
    "RefusedMessage",
    "Request",
    "Result",
    "SpecError",
    "UnreachableError",
    "WindrowError",
    "WindrowKafka",
    "WindrowSource",
    "Window",
    "load_spec",
    "load_specs",
    "replay_dead_letters",
    "open_pipeline",
    "pass_over_refused",
    "preview_window",
    "read_receipts",
    "run_batches",
    "run_window",
    "run_windows",
    "windows_named",
}
"""The public names. Users' code breaks if one is removed or changes its meaning."""


DAGSTER_NAMES = [
    "SPARK_KEY",
    "KafkaSource",
    "KafkaTable",
    "LedgerState",
    "Spark",
    "Table",
    "kafka_key",
    "kafka_table",
    "ledger_key",
    "partitions_of",
    "sink_key",
    "standing_on",
    "table_key",
    "when_complete",
]
"""The public names of `windrow.dagster`, in the order of the linter."""


def typed_names() -> dict[str, str]:
    """Returns the names that type checkers see, each with its module and its name there."""
    origin_by_name = {}
    for node in ast.walk(ast.parse((ROOT / "windrow" / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module != "importlib":
            origin_by_name |= {
                name.asname or name.name: f"{node.module}:{name.name}" for name in node.names
            }
    return origin_by_name


def test_the_names_are_these() -> None:
    """The public names change only together with this list."""
    assert set(windrow.__all__) == set(dir(windrow)) == NAMES
    assert windrow.__all__ == sorted(windrow.__all__)


def test_the_names_for_dagster_are_these() -> None:
    """The names of `windrow.dagster` change only together with their list, and their
    page has each.
    """
    import windrow.dagster

    assert windrow.dagster.__all__ == DAGSTER_NAMES
    assert [
        name
        for name in DAGSTER_NAMES
        if not hasattr(windrow.dagster, name) or f"`{name}" not in PAGE
    ] == []


def test_type_checkers_see_what_runs() -> None:
    """Each name is the same object at run time as for type checkers."""
    assert typed_names().keys() == set(windrow.__all__)
    for name, home in typed_names().items():
        module, _, attribute = home.partition(":")
        assert getattr(windrow, name) is getattr(import_module(module), attribute)


def test_type_checkers_refuse_another_name() -> None:
    """Type checkers don't see `__getattr__`, so they report misspelt names."""
    tree = ast.parse((ROOT / "windrow" / "__init__.py").read_text(encoding="utf-8"))
    hidden = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "not TYPE_CHECKING"
    ]
    assert [getattr(node, "name", None) for part in hidden for node in part.body] == ["__getattr__"]
    assert "__getattr__" not in {getattr(node, "name", None) for node in tree.body}


def test_no_name_is_a_modules() -> None:
    """No public name is also the name of a module of `windrow`.

    The import of such a module would replace the name among the package's attributes.
    """
    modules = {path.stem for path in (ROOT / "windrow").iterdir()}
    assert not NAMES & modules


def test_another_name_is_an_error() -> None:
    """A misspelt name raises AttributeError, like in any module."""
    with pytest.raises(AttributeError, match="'windrow' has no attribute 'run_window_'"):
        windrow.run_window_  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_loads_nothing() -> None:
    """`import windrow` loads no other module.

    `windrow.load_spec` loads only the modules that it needs: no Spark and no schema library.
    """
    script = """
import json, sys
before = set(sys.modules)
import windrow
alone = set(sys.modules) - before
windrow.load_spec
print(json.dumps([sorted(alone), sorted(sys.modules)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    own_modules, later = json.loads(done.stdout)
    assert own_modules == ["windrow"]
    assert not {"pyspark", "pandera", "polars", "duckdb", "confluent_kafka", "deltalake"} & set(
        later
    )


@pytest.fixture
def payments(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The page's pipeline in memory.

    Three messages are at nine o'clock, one of them poison, and two at ten.
    """
    folder = stage.folder / "payments"
    folder.mkdir()
    for name, source in (("defs.yaml", stage.spec), ("schema.py", stage.folder / "schema.py")):
        (folder / name).write_text(Path(source).read_text())
    stage.produce(9, b'{"id": 1}', b'{"id": 2}', b"poison")
    stage.produce(10, b'{"id": 3}', b'{"id": 4}')
    monkeypatch.setattr("windrow.ingest.assemble.assemble", stage.assemble)
    return stage


def test_the_example_runs(payments: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's code prints exactly this output."""
    (code,) = blocks("python", PAGE)
    scope: dict[str, Any] = {}
    exec(compile(code, "docs/python.md", "exec"), scope)
    lines = capsys.readouterr().out.splitlines()
    nine, ten = "2026-01-05T09:00:00Z", "2026-01-05T10:00:00Z"
    assert lines == [
        f"{nine} has 3 offsets",
        f"{nine} has 2 rows and 1 dead letters",
        f"{ten} has 2 offsets",
        f"{ten} has 2 rows and 0 dead letters",
        f"{nine} was committed with generation 0",
        f"{ten} was committed with generation 0",
    ]


def test_the_example_stops_at_a_window_that_is_not_over(
    payments: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's code catches the error of a window that isn't closed yet."""
    payments.now = payments.now.replace(day=5, hour=10, minute=30)
    (code,) = blocks("python", PAGE)
    exec(compile(code, "docs/python.md", "exec"), {})
    output = capsys.readouterr().out
    assert "too early: Window 2026-01-05T10:00:00Z of things is not closed yet" in output
    assert "2026-01-05T10:00:00Z was committed" not in output


def test_the_page_has_every_name() -> None:
    """The page has each public name once, and no other name."""
    named = re.findall(r"^\| `(\w+)[(`]", PAGE.partition("## For Dagster")[0], re.MULTILINE)
    assert sorted(named) == sorted(NAMES)
