"""The README's commands work for a new user, in an environment that the README creates.

Only the port is replaced, because it may be taken.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from textwrap import indent

import pytest

from tests.integration.newcomer import elsewhere, newcomer, other_terminal, shell, switched_on
from tests.shape.readme import ROOT, blocks, section

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

TABLE = section("Your first own table")
DAGSTER = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def put_file(block: str, folder: Path) -> None:
    """Writes a block to the file that its first line names."""
    file = folder / block.partition("\n")[0].removeprefix("# ")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block)


def test_from_a_topic_to_a_table_to_dagster(tmp_path: Path) -> None:
    """The README's commands install windrow and turn a topic into a table, each message once.

    The pipeline is generated. Dagster shows the run of the command and replaces it. A dg
    project loads it.
    """
    env = newcomer(tmp_path)
    install, *typed = blocks("sh", TABLE)
    repository = Path(env["HOME"]) / "windrow"
    assert "ok   java" in shell(install, repository, env)
    env = switched_on(repository / ".venv", env)
    broker, *walk = elsewhere(typed)
    project, *_, dg_project = blocks("python", DAGSTER)
    with other_terminal(broker, tmp_path, env):
        output = shell("\n".join(walk), tmp_path, env)
        _, verified, table = output.partition("nothing is wrong")
        assert verified
        assert re.search(r"09:00:00Z.*900", table), "nine o'clock has 900 payments"
        assert re.search(r"10:00:00Z.*100", table), "ten o'clock has the rest"
        in_python = shell(f"python - <<'END'\n{blocks('python', PYTHON)[0]}END\n", tmp_path, env)
        assert "09:00:00Z has 900 rows and 0 dead letters" in in_python
        replace, dagster_section = blocks("yaml", DAGSTER)
        put_file(project, tmp_path)
        put_file(replace, tmp_path)
        shown = shell("\n".join(blocks("sh", DAGSTER)), tmp_path, env)
        shown_json = shell("windrow show payments/defs.yaml --json", tmp_path, env)
    assert "Traceback" not in shown
    assert [w["receipt"]["generation"] for w in json.loads(shown_json)["windows"]] == [1, 1]
    from windrow import load_spec
    from windrow.ingest.model.boundary import instant

    assert (
        instant(load_spec(tmp_path / "payments" / "defs.yaml").window.start)
        == "2026-01-05T09:00:00Z"
    )  # type: ignore[arg-type]
    of_dg(tmp_path, dg_project, dagster_section, env)


def of_dg(folder: Path, definitions: str, dagster_section: str, env: dict[str, str]) -> None:
    """Loads the same files as a component of a dg project, with its group and owner."""
    project = folder / "own"
    put_file(definitions, project)
    (project / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    (project / "src" / "shop" / "__init__.py").touch()
    component = project / "src" / "shop" / "defs" / "payments"
    shutil.copytree(
        folder / "payments", component, ignore=shutil.ignore_patterns("data", ".windrow")
    )
    with (component / "defs.yaml").open("a") as file:
        file.write("\n" + indent(dagster_section, "  "))
    listed = json.loads(
        shell("dg list defs --json", project, env | {"PYTHONPATH": str(project / "src")})
    )
    asset = next(a for a in listed["assets"] if a["asset_key"] == "bank/payments")
    assert (asset["group_name"], asset["owners"][0]) == ("bank", {"team": "payments"})
