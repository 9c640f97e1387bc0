"""What would be installed: three packages and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"ingest", "assets", "resources"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network, by what the lock installed."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, str]:
    """The wheel's text files by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_wheel_holds_the_three_packages_only(files: dict[str, str]) -> None:
    """Nothing lands beside them: no tests, no dagster_home."""
    info = {name.split("/")[0] for name in files if ".dist-info/" in name}
    assert {name.split("/")[0] for name in files} - info == PACKAGES
    assert len(info) == 1


def test_wheel_is_complete(files: dict[str, str]) -> None:
    """Every file of the packages is in it: types, the pom, the pipeline's YAML."""
    ours = {
        str(p.relative_to(ROOT))
        for package in PACKAGES
        for p in (ROOT / package).rglob("*")
        if p.is_file() and p.parent.name != "__pycache__"
    }
    assert ours <= set(files)
    assert {f"{package}/py.typed" for package in PACKAGES} | {"ingest/kafka/embedded/kafka-pom.xml", "assets/defs/orders/defs.yaml"} <= set(
        files
    )


def test_wheel_refuses_to_be_uploaded(files: dict[str, str]) -> None:
    """An index refuses a distribution with this classifier."""
    (metadata,) = (text for name, text in files.items() if name.endswith(".dist-info/METADATA"))
    assert "Private :: Do Not Upload" in (message_from_string(metadata).get_all("Classifier") or [])


def test_wheel_brings_the_command_and_the_component(files: dict[str, str]) -> None:
    """Both are found by their entry points."""
    (text,) = (text for name, text in files.items() if name.endswith(".dist-info/entry_points.txt"))
    assert "windrow = ingest.cli.main:main" in text
    assert "[dagster_dg_cli.registry_modules]\nwindrow = assets.component" in text


def test_wheel_passes_the_common_checks(wheel: Path) -> None:
    """check-wheel-contents finds no duplicate, stray or missing file."""
    checked = subprocess.run(
        [sys.executable, "-m", "check_wheel_contents", str(wheel)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
