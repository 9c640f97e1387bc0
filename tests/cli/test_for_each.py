"""The command on a file with one pipeline for each topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yaml import safe_load

from tests.cli.conftest import START, Stage, hour
from tests.shape.readme import ROOT, blocks
from windrow.ingest.cli import doctor
from windrow.ingest.model.boundary import TopicPartition

SPEC = """\
for_each: {topic_pattern: 'shop[.](.*)', topics: [shop.things, shop.gone, shop.more]}
id: "{name}"
source: {bootstrap_servers: "127.0.0.1:1"}
window: {grid: hourly, start: 2026-01-05T00:00:00Z}
decode: {schema: "schema.py:Thing"}
limits: {max_dead_ratio: 0.6}
sink: {path: "lake/{name}"}
"""


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Three pipelines of one file, of which the second one's topic doesn't exist."""
    stage.broker.create_topic("shop.more", partitions=1, retention_ms=None)
    stage.broker.produce(TopicPartition("shop.more", 0), b'{"id": 7}', timestamp=START)
    Path(stage.spec).write_text(SPEC)
    return stage


def rows(document: Any) -> list[int]:
    return [w["committed"]["receipt"]["counts"]["rows"] for w in document["windows"]]


def test_a_command_is_called_for_each_pipeline_of_a_file(stage: Stage) -> None:
    """One that fails doesn't stop the others; one document has all, and the first one's exit code.

    Each has a table and receipts of its own, and `FILE:ID` is one of them alone.
    """
    ran = stage.json("run", stage.spec, "--window", hour(0), code=2)["pipelines"]
    assert [*ran] == ["things", "gone", "more"]
    assert (rows(ran["things"]), rows(ran["more"])) == ([4], [1])
    assert "shop.gone" in ran["gone"]["error"]["message"]
    last = stage.call("run", stage.spec, "--window", hour(0)).stderr.splitlines()[-1]
    assert last == (
        f"Of 3 pipelines these ended with another exit code than 0: {stage.spec}:gone (2)"
    )
    shown = stage.json("show", f"{stage.spec}:more")
    assert (shown["pipeline"], len(shown["windows"])) == ("more", 1)
    said = stage.call("show", stage.spec)
    assert said.exit_code == 0
    heads = [line for line in said.stdout.splitlines() if line.startswith(stage.spec)]
    assert heads == [f"{stage.spec}:{name}" for name in ("things", "gone", "more")]


def test_a_file_that_cannot_be_read(stage: Stage) -> None:
    """A disk's error while the file is read is the command's error, not a bug's."""
    memory = Path("/proc/self/mem")  # a file that can't be read
    for command in ("plan", "doctor"):
        ended = stage.call(command, str(memory))
        assert ended.exit_code == 2
        assert f"{memory} can't be read: Input/output error" in " ".join(ended.output.split())


def test_options_of_one_pipeline_are_refused_for_a_file_with_several(stage: Stage) -> None:
    """A file that all pipelines would write in turn has to be of one of them."""
    refused = stage.call("peek", stage.spec, "--out", "x.parquet")
    assert refused.exit_code == 2
    assert "and out is of one" in " ".join(refused.output.replace("│", " ").split())
    assert not Path("x.parquet").exists()


def test_advised_commands_name_the_pipeline(stage: Stage) -> None:
    """What a message advises to type has `FILE:ID`, which the command takes."""
    stage.call("pause", f"{stage.spec}:more", "--why", "moved")
    paused = stage.json("run", f"{stage.spec}:more", "--window", hour(0), code=1)
    assert f"windrow resume {stage.spec}:more" in paused["error"]["message"]
    assert rows(stage.json("run", f"{stage.spec}:things", "--window", hour(0))) == [4]


def test_doctor_finds_new_topics_of_the_pattern_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that matches the pattern and has no pipeline is a warning of the first pipeline."""
    monkeypatch.setattr(doctor, "java_problem", lambda: None)
    for new in ((), ("shop.new",)):
        for topic in new:
            stage.broker.create_topic(topic, partitions=1, retention_ms=None)
        stage.broker.create_topic(f"other{new}", partitions=1, retention_ms=None)
        documents = stage.json("doctor", stage.spec, code=2)["pipelines"]
        checks = [c for d in documents.values() for c in d["checks"] if c["name"] == "new topics"]
        assert [c["level"] for c in checks] == ["warn" if new else "ok"]
    assert "for_each.topic_pattern matches: 1 topic, shop.new" in str(checks)


def test_the_pages_script_moves_files_into_one_without_a_new_table(stage: Stage) -> None:
    """Pipelines of one topic each go on in one file: their windows are there, and nothing new.

    Their ids, schemas, limits and grids differ.
    """
    folder = stage.folder / "pipelines"
    old = {"things": ("hourly", "limits: {max_dead_ratio: 0.6}"), "more": ("daily", "")}
    for name, (grid, limits) in old.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "schema.py").write_text((stage.folder / "schema.py").read_text())
        (folder / name / "defs.yaml").write_text(
            f"""attributes:
  id: old_{name}
  source: {{bootstrap_servers: "127.0.0.1:1", topic: shop.{name}}}
  window: {{grid: {grid}, start: 2026-01-05T00:00:00Z}}
  decode: {{schema: "schema.py:Thing"}}
  {limits}
  sink: {{path: ./lake}}
"""
        )
        assert stage.call("run", str(folder / name / "defs.yaml"), "--due").exit_code == 0
    [code] = [b for b in blocks("python", (ROOT / "docs/pipeline.md").read_text()) if "old" in b]
    exec(compile(code, "pipeline.md", "exec", dont_inherit=True), {})
    spec = folder / "defs.yaml"
    assert [*safe_load(spec.read_text())["attributes"]["for_each"]["topics"]] == [
        "shop.more",
        "shop.things",
    ]
    verified = stage.json("verify", str(spec))["pipelines"]
    assert {*verified} == {"old_things", "old_more"}
    due = stage.json("due", str(spec))["pipelines"]
    assert [document["windows"] for document in due.values()] == [[], []]
    shown = stage.json("show", f"{spec}:old_things")["windows"]
    again = stage.json("run", f"{spec}:old_things", "--window", hour(0))["windows"]
    assert again[0]["recovered"]
    assert stage.json("show", f"{spec}:old_things")["windows"] == shown
