"""`windrow init`: what it writes, what it says, and when it ends how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.cli import beginning
from tests.cli.conftest import Stage


@pytest.fixture
def stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The cluster in memory is what `init` looks at, too."""
    monkeypatch.setattr(beginning, "connect", stage.connect)
    return stage


def typed_next(said: str) -> list[list[str]]:
    """The commands that it says to type next, as words after `windrow`."""
    return [line.split()[1:] for line in said.splitlines() if line.startswith("  windrow ")]


def test_what_init_says_can_be_typed(stage: Stage, tmp_path: Path) -> None:
    """The two commands at its end plan and commit the first window, with nothing edited in between."""
    result = stage.call("init", str(tmp_path / "new"), "--topic", "shop.things", "--bootstrap", "127.0.0.1:1")
    assert result.exit_code == 0, result.output
    assert "1 column, guessed from 12 messages of shop.things, of which 10 fit" in result.stdout
    assert "2: not_json" in result.stdout
    plan, run = typed_next(result.stdout)
    assert (plan[0], run[0]) == ("plan", "run")
    assert stage.call(*plan).exit_code == 0
    spec = tmp_path / "new" / "defs.yaml"
    spec.write_text(spec.read_text().replace("max_dead_ratio: 0.01", "max_dead_ratio: 0.6"))
    (window,) = stage.json(*run)["windows"]
    assert window["committed"]["receipt"]["counts"]["valid"] == 4
    assert (tmp_path / "new" / "data" / "shop_things").is_dir()


def test_without_a_topic_there_is_a_template(stage: Stage, tmp_path: Path) -> None:
    """Nothing is asked; the files load, and it is said that they are an example."""
    document = stage.json("init", str(tmp_path / "new"))
    assert (document["why"], document["pipeline"]) == ("no topic was named (--topic)", "new")
    assert stage.call("show", document["spec"]).exit_code == 0


def test_an_unknown_topic_is_no_hindrance(stage: Stage, tmp_path: Path) -> None:
    """A pipeline may be begun before its topic is there: the reason is told beside the example."""
    result = stage.call("init", str(tmp_path / "new"), "--topic", "nowhere")
    assert result.exit_code == 0
    assert "an example" in result.stdout
    assert "nowhere" in (tmp_path / "new" / "defs.yaml").read_text()


@pytest.mark.parametrize(
    "arguments", [["--topic", "a b"], ["--grid", "weekly"], ["--bootstrap", "nowhere"], ["--id", "a b"], ["--id", ".."], ["--sample", "5"]]
)
def test_wrong_words_are_usage(stage: Stage, tmp_path: Path, arguments: list[Any]) -> None:
    """What makes no spec ends with 2, and nothing is written."""
    assert stage.call("init", str(tmp_path / "new"), *arguments).exit_code == 2
    assert not (tmp_path / "new").exists()


def test_files_that_are_there_stay(stage: Stage, tmp_path: Path) -> None:
    """The second time ends with 2 and leaves the first time's files as a person has changed them."""
    stage.json("init", str(tmp_path / "new"))
    schema = tmp_path / "new" / "schema.py"
    schema.write_text("mine")
    result = stage.call("init", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert "there already" in result.stderr
    assert schema.read_text() == "mine"
