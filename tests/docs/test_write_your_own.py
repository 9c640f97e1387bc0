"""docs/write-your-own.md and docs/sinks/writing.md: the plugin can be installed and used.

It passes windrow's contract suites.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.cli.conftest import START, Stage
from tests.integration.harness import millis
from tests.integration.user import ELSEWHERE
from tests.kafka.produce import Put, create_topic, produce
from windrow.assets.component import Attributes
from windrow.assets.factory import kafka_table
from windrow.ingest import assemble as assembly
from windrow.ingest.config.load import load_spec
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.settings import kinds
from windrow.ingest.testing.broker import MemoryBroker

PAGES = "".join(
    (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    for page in ("write-your-own.md", "sinks/writing.md")
)
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", PAGES, re.DOTALL | re.MULTILINE))
"""The files on the pages, by their paths."""

LINES = [
    b'level=info user="Ann \\"A\\" Lee" zone=kyiv ms=12',
    b"level=warn user=Bob zone=lima",
    b"something else",
    b"level=info user=Cid zone=oslo ms=7",
    b"level=info ms=soon",
]
ROWS = [("info", "A***", "UA", 12), ("warn", "B***", None, None), ("info", "C***", None, 7)]
"""The rows of `LINES`: lima has no country, and oslo no row in the lookup table."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the page's distribution is installed, like pip does."""
    project, site = tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "acme_windrow" / "__init__.py").touch()
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "install", "--offline", "--no-deps", "--no-build-isolation"]
    command += ["--python", sys.executable, "--target", str(site), str(project)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return site


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The distribution, importable in this process and its children."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(kinds, "LOADED", {})  # workers of later tests don't need these kinds
    yield site
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_windrow"]:
        del sys.modules[name]


def spec_in(folder: Path) -> Path:
    """Writes the pages' pipeline, and the table of its lookup."""
    spec = folder / "logs.yaml"
    spec.write_text(FILES["logs.yaml"])
    (folder / "zones.csv").write_text("zone,country\nkyiv,UA\nlima,\n")
    return spec


def read_rows(folder: Path) -> list[tuple[Any, ...]]:
    """Returns the rows of the pages' sink, in order."""
    with duckdb.connect(str(folder / "lake.duckdb")) as database:
        query = 'SELECT level, "user", country, ms FROM logs ORDER BY _offset'
        return database.execute(query).fetchall()


def test_a_format_fits_on_a_screen() -> None:
    """The format on the page has at most sixty lines."""
    assert len(FILES["acme_windrow/logfmt.py"].splitlines()) <= 60
    assert all(len(line) <= 100 for text in FILES.values() for line in text.splitlines())


def suites(site: Path, folder: Path, *which: str) -> None:
    """Runs the pages' tests like a plugin's developer would."""
    (folder / "test_contracts.py").write_text(FILES["test_contracts.py"])
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *which]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", str(folder)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout


@pytest.mark.slow
def test_the_kinds_keep_the_contracts(site: Path, tmp_path: Path) -> None:
    """The format, the step and the lookup source pass the package's contract suites."""
    suites(site, tmp_path, "-k", "not Duckdb or at_once or second_commit or lost_answer")


@pytest.mark.long
def test_the_sink_keeps_the_contracts(site: Path, tmp_path: Path) -> None:
    """The kind of sink passes all of its contract suites."""
    suites(site, tmp_path, "-k", "Duckdb")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The pages' pipeline on a topic in memory, with tasks in this process."""
    broker = MemoryBroker()
    broker.create_topic("logs", partitions=1)
    for n, line in enumerate(LINES):
        broker.produce(TopicPartition("logs", 0), line, timestamp=START + timedelta(seconds=n))
    new_stage = Stage(tmp_path, broker)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROKER", "127.0.0.1:1")
    for name in ("assemble", "assemble_to_look", "connect"):
        monkeypatch.setattr(assembly, name, getattr(new_stage, name))
    return new_stage


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_pipeline_by_the_command(stage: Stage) -> None:
    """Every command accepts the plugins like windrow's own kinds.

    Dagster has the table, and the JSON schema accepts the options.
    """
    assert distribution("acme-windrow").version == "1.0"
    spec = spec_in(stage.folder)
    window = "--window", "2026-01-05T00:00:00Z"
    assert stage.call("plan", str(spec), *window).exit_code == 0
    stage.json("run", str(spec), *window)
    assert read_rows(stage.folder) == ROWS
    assert [
        window_run["recovered"] for window_run in stage.json("run", str(spec), *window)["windows"]
    ] == [True]
    stage.json("replay", str(spec), *window)
    assert read_rows(stage.folder) == ROWS
    receipt = stage.json("show", str(spec))["windows"][0]["receipt"]
    assert [receipt["counts"][name] for name in ("read", "rows", "dead")] == [5, 3, 2]
    assert receipt["pins"][0]["source"].endswith("zones.csv")
    letters = stage.json("dead", "show", str(spec), *window)["dead"]
    assert sorted(letter["reason"] for letter in letters) == ["no_logfmt", "sql:ms"]
    assert stage.json("verify", str(spec), "--deep")["findings"] == []
    looked = stage.call("peek", str(spec), "--rows")
    assert looked.exit_code == 0, looked.output
    assert "A***" in looked.output
    assert stage.call("doctor", str(spec)).exit_code in {0, 1}

    loaded = load_spec(spec)
    assets = kafka_table(loaded).assets or ()
    tags = [tags for asset in assets for tags in getattr(asset, "tags_by_key", {}).values()]
    assert any("dagster/kind/duckdb" in asset_tags for asset_tags in tags)
    written = yaml.load(spec.read_text(), yaml.BaseLoader)
    mistakes = Draft202012Validator(Attributes.model_json_schema()).iter_errors(written)
    assert [mistake.message for mistake in mistakes] == []


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.usefixtures("installed")
def test_the_pipeline_on_kafka_and_spark(kafka: str, tmp_path: Path) -> None:
    """The pipeline runs in a separate process with Spark's workers, only with the command."""
    topic = create_topic(kafka, 1)
    produce(kafka, topic, [Put(line, millis(1, n)) for n, line in enumerate(LINES)])
    spec = spec_in(tmp_path)
    spec.write_text(spec.read_text().replace("topic: logs", f"topic: {topic}"))
    env = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}

    def types(*words: str) -> Any:
        command = [str(Path(sys.executable).with_name("windrow")), *words, "--json"]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=env | {"BROKER": kafka},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    window = "--window", "2026-01-05T01:00:00Z"
    types("run", "logs.yaml", *window)
    assert read_rows(tmp_path) == ROWS
