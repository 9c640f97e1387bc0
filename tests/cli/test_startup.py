"""The modules that a command loads before its work, which cost seconds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.cli.conftest import Stage, hour
from tests.commands import with_spec

pytestmark = pytest.mark.slow  # starts processes that import modules

ROOT = Path(__file__).parents[2]

COMMAND = """
import json, sys
from windrow.ingest.cli.main import app

try:
    app(sys.argv[1:], prog_name="windrow")
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
"""A script that runs the command, and then prints the loaded modules on stderr."""

LOOK = """
import json, sys

import windrow.ingest.assemble
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.testing.broker import MemoryBroker

topic_id, *arguments = sys.argv[1:]
broker = MemoryBroker()
broker.create_topic("shop.things", partitions=2, retention_ms=None)
broker._topics["shop.things"].topic_id = topic_id
for i in range(12):
    tp, stamp = TopicPartition("shop.things", i % 2), 1_767_600_000_000 + i * 1_800_000
    broker.produce(tp, b'{"id": 1}', timestamp=stamp)
windrow.ingest.assemble.reach = lambda cluster, isolation: (broker, None)

from windrow.ingest.cli.main import app

try:
    app(arguments, prog_name="windrow")
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
"""A script like COMMAND, with a Kafka in memory that has the topic with this id."""

FRAME = {
    "typer",
    "click",  # of older versions of typer
    "rich",
    "msgspec",
    "typing_extensions",
    "shellingham",
    "pygments",
    "markdown_it",
    "mdurl",
    "annotated_doc",
    "attr",
    "_distutils_hack",
    "linkify_it",
}
"""The packages of the command's frame, and those that they load or look for."""

CALLED = {"dotenv", "pydantic", "pydantic_core", "annotated_types", "typing_inspection"}
"""The packages that the frame loads for any command, because typer looks for pydantic's types."""

HEAVY = {
    "pandas",
    "pandera",
    "polars",
    "duckdb",
    "numba",
    "llvmlite",
    "pyspark",
    "py4j",
    "structlog",
    "psutil",
    "hypothesis",
    "dagster",
    "typeguard",
}
"""Packages that only decoding, tasks or the report of a bug need."""


SPEC = """\
id: things
source: {bootstrap_servers: "127.0.0.1:9", topic: things}
window: {grid: hourly, start: 2026-01-05T00:00:00Z}
decode: {schema: "things.py:Thing"}
transform: {steps: [{sql: SELECT * FROM rows}]}
sink: {kind: delta, path: ./things}
"""


def run_and_list_modules(script: str, *arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Runs a script, and returns its output and the modules that it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


def test_the_end_is_silent(tmp_path: Path) -> None:
    """A command that used DuckDB writes nothing to stderr when Python ends."""
    spec, lines = tmp_path / "defs.yaml", tmp_path / "lines.json"
    spec.write_text(SPEC)
    shutil.copy(ROOT / "tests" / "integration" / "things.py", tmp_path)
    lines.write_text('{"id": 1, "name": "x"}\n')
    done = subprocess.run(
        [sys.executable, "-m", "windrow.ingest.cli.main", "try", spec, lines],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def foreign_packages(modules: set[str]) -> set[str]:
    """Returns the packages among the modules that aren't windrow's."""
    return {name.partition(".")[0] for name in modules} & packages_distributions().keys() - {
        "windrow"
    }


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["plan", "--help"], CALLED),
        (["broker", "run", "--help"], CALLED),
    ],
)
def test_help_loads_the_frame_only(arguments: list[str], more: set[str]) -> None:
    """The help loads typer and rich, and no other package that windrow depends on."""
    output, modules = run_and_list_modules(COMMAND, *arguments)
    assert "windrow" in output
    assert foreign_packages(modules) <= FRAME | more


@pytest.mark.some(1)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    """Completion in each shell lists the matching commands, and loads the frame only."""
    typed = {
        "COMP_WORDS": "windrow pl",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "windrow pl",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    output, modules = run_and_list_modules(COMMAND, **typed, _WINDROW_COMPLETE=f"complete_{shell}")
    assert "plan" in output
    assert "replay" not in output
    assert foreign_packages(modules) <= FRAME | CALLED - {"dotenv"}


@pytest.mark.some(1)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_shown(shell: str) -> None:
    """`--show-completion` prints the script for the given shell, without detecting the shell."""
    output, _ = run_and_list_modules(
        COMMAND, "--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert "_WINDROW_COMPLETE=" in output


@pytest.fixture
def committed_stage(stage: Stage) -> Stage:
    """A pipeline with a committed window."""
    stage.json("run", stage.spec, "--window", hour(0))
    return stage


def topic_id(stage: Stage) -> str:
    """Returns the topic's id."""
    return stage.broker.topics(["shop.things"])["shop.things"].topic_id


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("command", "expected_text"),
    [
        (["lag"], "shop.things[1]"),
        (["show"], hour(0)),
        (["dead", "show", "--window", hour(0), "--json"], "not_json"),
        (["run", "--window", hour(0)], "committed already"),
    ],
    ids=["lag", "show", "dead", "run"],
)
def test_a_look_loads_no_frames_of_data(
    committed_stage: Stage, command: list[str], expected_text: str
) -> None:
    """Looking at a pipeline, or running a committed window, loads no heavy package.

    The schema isn't loaded, either.
    """
    output, modules = run_and_list_modules(
        LOOK, topic_id(committed_stage), *with_spec(command, committed_stage.spec)
    )
    assert expected_text in output
    assert foreign_packages(modules) & HEAVY - ({"pandas"} if "dead" in command else set()) == set()


def test_show_opens_no_ledger(committed_stage: Stage) -> None:
    """`show` reads the receipts of the table, and opens no ledger."""
    _, modules = run_and_list_modules(LOOK, topic_id(committed_stage), "show", committed_stage.spec)
    assert "sqlalchemy" not in foreign_packages(modules)


def test_a_batch_of_messages_is_needed_before_pandas_is(tmp_path: Path) -> None:
    """Modules that read, plan and commit make no Arrow array when they are imported.

    The first such array loads pandas.
    """
    named = (
        "windrow.ingest.source.reader.reader, windrow.ingest.sinks.delta.store,"
        " windrow.ingest.runner.task"
    )
    script = f"import {named}, json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    assert "pandas" not in foreign_packages(run_and_list_modules(script)[1])
