"""The examples in the docstrings of the public names."""

from __future__ import annotations

import ast
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from textwrap import dedent
from unittest.mock import MagicMock, patch

import pytest

import windrow
from tests.cli.conftest import HOURLY, Stage, stage
from tests.shape.readme import ROOT
from windrow.ingest.dataframes.options import read_options, write_options

__all__ = ["stage"]  # the fixture

AIRFLOW = ROOT / "airflow"
AIRFLOW_ARGUMENTS = {"task_id", "outlets", "timeout", "on_retry_callback"}
"""The arguments in the examples that Airflow's own operators have."""

DATA_SOURCES = {"WindrowKafka": write_options, "WindrowSource": read_options}
"""The names whose examples use Spark, each with the check of its options."""

FAKED_ERRORS = ("BugError", "UnreachableError")
"""The errors that no pipeline in memory raises."""


def examples_of(module: Path, folder: Path = ROOT) -> dict[str, str]:
    """Returns the example of each name that a module imports from windrow. Imports nothing.

    An example is the end of a docstring. The docstring of a constant is under it.
    """
    examples = {}
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("windrow"):
            path = folder / f"{str(node.module).replace('.', '/')}.py"
            for alias in node.names:
                pattern = rf'^(?:class |def )?{alias.name}\b.*?"""(.*?)"""'
                text, flags = path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
                docstring = "".join(re.findall(pattern, text, flags)[:1])
                code = dedent(docstring.partition("Example:\n")[2]).strip()
                examples[alias.asname or alias.name] = code
    return examples


@pytest.fixture
def pipelines(stage: Stage) -> Stage:
    """The pipelines of the examples: payments in hours, and clicks in micro-batches.

    Each of three hours has a message that isn't JSON. The last one, 11:00, has no other.
    """
    for folder, window in (("payments", HOURLY), ("clicks", "grid: batch")):
        stage.write(window=window)
        (stage.folder / folder).mkdir()
        shutil.copy(stage.spec, stage.folder / folder / "defs.yaml")
        shutil.copy("schema.py", folder)
    for hour in (9, 10):
        stage.produce(hour, b'{"id": 1}', b"{'id': 2}")
    stage.produce(11, b"{'id': 3}", b"{'id': 4}")
    spec = windrow.load_spec("payments/defs.yaml")
    (nine,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
    windrow.run_window(windrow.open_pipeline(spec), nine, windrow.Request("before"))
    return stage


def test_the_example_of_each_public_name_runs(
    pipelines: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each public name has an example of at most eight lines, and its code runs.

    Spark is a mock. Airflow isn't installed, so only names and arguments are checked.
    """
    examples = examples_of(ROOT / "windrow/__init__.py") | examples_of(ROOT / "windrow/dagster.py")
    of_airflow = examples_of(AIRFLOW / "windrow_airflow/__init__.py", AIRFLOW)
    counts = {name: len(re.findall(r".+", code)) for name, code in (examples | of_airflow).items()}
    assert {name: count for name, count in counts.items() if not 2 <= count <= 8} == {}

    outputs = {}
    for name, code in examples.items():
        spark = MagicMock()
        error = getattr(windrow, name)("It", "plan", "Do it") if name in FAKED_ERRORS else None
        with patch.object(windrow, "run_window", side_effect=error) if error else nullcontext():
            bytecode = compile(code, f"example of {name}", "exec", dont_inherit=True)
            exec(bytecode, {"spark": spark})
        outputs[name] = capsys.readouterr().out
        assert outputs[name] or "print(" not in code, f"{name}: no line printed anything"
        if name in DATA_SOURCES:
            calls = spark.mock_calls
            assert f".format({getattr(windrow, name).name()!r})" in str(calls), name
            DATA_SOURCES[name](dict(c.args for c in calls if c[0].endswith(".option")))
    assert outputs["RefusedMessage"] == "1 were repaired\n"

    arguments = AIRFLOW_ARGUMENTS | {
        argument.arg
        for path in AIRFLOW.glob("windrow_airflow/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.arguments)
        for argument in node.kwonlyargs
    }
    for name, code in of_airflow.items():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module == "windrow_airflow":
                assert {alias.name for alias in node.names} <= of_airflow.keys(), name
            if isinstance(node, ast.Call) and ast.unparse(node.func) in of_airflow:
                assert {keyword.arg for keyword in node.keywords} <= arguments, name
