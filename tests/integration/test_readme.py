"""The README's walks, and Python's page, word for word but for the port, which may be
taken: what a newcomer copies works.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.shape.readme import ROOT, blocks, section

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

SECONDS = 600
"""Most seconds that a shell may take where the machine is busy; a hang must not cost the suite."""

PORT = "29092"
"""The one in the README."""

OURS = ("DAGSTER_HOME", "WINDROW_HOME", "WINDROW_BOOTSTRAP", "WINDROW_STATE", "WINDROW_CRASH")
TABLE = section("Your first own table")
DAGSTER = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def newcomer(folder: Path) -> dict[str, str]:
    """The environment of somebody who has just switched .venv on: a home folder with
    nothing in it, none of windrow's variables.
    """
    (folder / "home").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return kept | {
        "HOME": str(folder / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


@contextmanager
def other_terminal(command: str, folder: Path, env: dict[str, str]) -> Iterator[None]:
    """A broker that runs beside until Ctrl-C; here once it has said that it is up."""
    bash = ["bash", "-ec", f"exec {command.strip()}"]
    with subprocess.Popen(
        bash, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert "Kafka answers on" in said, said
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            late.cancel()


def shell(typed: str, folder: Path, env: dict[str, str]) -> str:
    """All of it in one shell, which stops at what fails; what it said on stdout."""
    bash = ["bash", "-euo", "pipefail", "-c", typed]
    done = subprocess.run(
        bash, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def elsewhere(typed: list[str]) -> list[str]:
    """The same on a port that is free here."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert any(PORT in block for block in typed)
    return [block.replace(PORT, str(port)) for block in typed]


def put_file(block: str, folder: Path) -> None:
    """A block whose first line says which file it is."""
    file = folder / block.partition("\n")[0].removeprefix("# ")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block)


def test_from_a_topic_to_a_table_to_dagster(tmp_path: Path) -> None:
    """A topic becomes a table by a generated pipeline, each message once; Dagster shows
    what the command ran, and a dg project takes it.
    """
    env = newcomer(tmp_path)
    broker, *walk = elsewhere(blocks("sh", TABLE))
    project, _, dg_project = blocks("python", DAGSTER)
    with other_terminal(broker, tmp_path, env):
        said = shell("\n".join(walk), tmp_path, env)
        _, verified, table = said.partition("nothing is wrong")
        assert verified
        assert re.search(r"09:00:00Z.*900", table), "nine o'clock has 900 payments"
        assert re.search(r"10:00:00Z.*100", table), "ten o'clock has the rest"
        in_python = shell(f"python - <<'END'\n{blocks('python', PYTHON)[0]}END\n", tmp_path, env)
        assert "09:00:00Z has 900 rows and 0 dead letters" in in_python
        put_file(project, tmp_path)
        shown = shell("\n".join(blocks("sh", DAGSTER)), tmp_path, env)
    assert "Traceback" not in shown
    from windrow import load_spec
    from windrow.ingest.model.label import instant

    assert (
        instant(load_spec(tmp_path / "payments" / "defs.yaml").window.start)
        == "2026-01-05T09:00:00Z"
    )  # type: ignore[arg-type]
    of_dg(tmp_path, dg_project, env)


def of_dg(folder: Path, definitions: str, env: dict[str, str]) -> None:
    """The same files as a component in a project of dg's form: loaded, in its group,
    with its owner.
    """
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
        file.write("\n" + blocks("yaml", DAGSTER)[0])
    listed = json.loads(
        shell("dg list defs --json", project, env | {"PYTHONPATH": str(project / "src")})
    )
    found = next(a for a in listed["assets"] if a["asset_key"] == "payments")
    assert (found["group_name"], found["owners"]) == ("bank", [{"team": "payments"}])
