"""Tests of the wheel: it has one package without the demo, and works without the
project's folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("ingest", "assets", "resources")
LEFT_OUT = ("windrow/assets/demo/", "windrow/assets/defs/", "windrow/assets/definitions.py")
"""The demo, and the definitions that Dagster loads in the project's folder."""

SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64
"""
COMPONENT = """\
type: windrow.dagster.KafkaTable
attributes:
  id: things
  source: {bootstrap_servers: "127.0.0.1:1", topic: shop.things}
  window: {grid: hourly, start: 2026-01-05T00:00:00Z}
  decode: {schema: "schema.py:Thing"}
  sink: {path: lake/things}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's path. It is built without a network, by packages of the lock."""
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, str]:
    """The wheel's text files by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_wheel_holds_one_package_only(files: dict[str, str]) -> None:
    """The wheel has the package `windrow` only: no tests, and no name that users'
    projects may have.
    """
    info = {name.split("/")[0] for name in files if ".dist-info/" in name}
    assert {name.split("/")[0] for name in files} - info == {"windrow"}
    assert len(info) == 1


def test_wheel_is_complete(files: dict[str, str]) -> None:
    """The wheel has each file of the package except the demo's, and each page of the
    documentation.
    """
    folders = [
        *((f"windrow/{name}", ROOT / name) for name in FOLDERS),
        ("windrow", ROOT / "windrow"),
    ]
    ours = {
        f"{name}/{path.relative_to(folder)}"
        for name, folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    pages = {f"windrow/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md")}
    assert pages | {name for name in ours if not name.startswith(LEFT_OUT)} <= set(files)
    assert {
        "windrow/py.typed",
        "windrow/dagster.py",
        "windrow/ingest/kafka/embedded/kafka-pom.xml",
        "windrow/ingest/kafka/embedded/kafka-jars.sha256",
    } <= set(files)


def test_the_demo_is_left_out(files: dict[str, str]) -> None:
    """The demo's pipelines are not in the wheel, and no module in it imports them."""
    assert [name for name in files if name.startswith(LEFT_OUT)] == []
    assert [
        name
        for name, text in files.items()
        if name.endswith(".py") and re.search(r"assets\.(demo|defs)\b", text)
    ] == []


def test_wheel_refuses_to_be_uploaded(files: dict[str, str]) -> None:
    """The wheel has the classifier that makes a package index refuse it."""
    (metadata,) = (text for name, text in files.items() if name.endswith(".dist-info/METADATA"))
    assert "Private :: Do Not Upload" in (message_from_string(metadata).get_all("Classifier") or [])


def test_wheel_brings_the_command_and_the_component(files: dict[str, str]) -> None:
    """The wheel has the entry points of the command and of the Dagster component."""
    (text,) = (text for name, text in files.items() if name.endswith(".dist-info/entry_points.txt"))
    assert "windrow = windrow.ingest.cli.main:main" in text
    assert "[dagster_dg_cli.registry_modules]\nwindrow = windrow.dagster" in text


def test_wheel_passes_the_common_checks(wheel: Path) -> None:
    """check-wheel-contents finds no duplicate, unexpected or missing file."""
    checked = subprocess.run(
        [sys.executable, "-m", "check_wheel_contents", str(wheel)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and its dependencies, without the project's folder."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )  # .pth files in there aren't read, so windrow's own isn't
    return home


def run(home: Path, code: str, folder: Path, *arguments: str) -> str:
    """Returns the output of a program that runs with this Python in a folder outside
    the project.
    """
    kept_env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "WINDROW_", "DAGSTER_"))
    }
    done = subprocess.run(
        [home / "bin" / "python", "-c", code, *arguments],
        cwd=folder,
        env=kept_env | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_works_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    """`windrow --help` and the public names work from the installed wheel."""
    module_file = run(installed, "import windrow; print(windrow.__file__)", tmp_path)
    assert Path(module_file.strip()).is_relative_to(installed)
    assert "doctor" in run(
        installed, "from windrow.ingest.cli.main import main; main()", tmp_path, "--help"
    )
    assert "sink" in run(
        installed, "import windrow; print(*windrow.PipelineSpec.model_fields)", tmp_path
    )


def test_the_component_works_in_a_project_of_its_own(installed: Path, tmp_path: Path) -> None:
    """A project that `dg` made loads the component from the wheel.

    It may have its own packages with the names assets, resources and ingest.
    """
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    folder = tmp_path / "src" / "shop" / "defs" / "things"
    folder.mkdir(parents=True)
    (tmp_path / "src" / "shop" / "__init__.py").touch()
    for name in FOLDERS:
        (tmp_path / "src" / name).mkdir()
        (tmp_path / "src" / name / "__init__.py").write_text("OF = 'the shop'\n")
    (folder / "schema.py").write_text(SCHEMA)
    (folder / "defs.yaml").write_text(COMPONENT)
    code = """
import json, sys
from pathlib import Path
import dagster as dg
sys.path.insert(0, "src")
import assets, ingest, resources
loaded = dg.load_from_defs_folder(path_within_project=Path("src/shop").resolve())
print(json.dumps(sorted(spec.key.to_user_string() for spec in loaded.resolve_all_asset_specs())))
print(json.dumps([assets.OF, ingest.OF, resources.OF]))
"""
    asset_keys, others = map(json.loads, run(installed, code, tmp_path).splitlines()[-2:])
    assert asset_keys == ["kafka/shop.things", "things", "things_dead"]
    assert others == ["the shop"] * 3
