"""The environments that peers run in. Each is made once, from the files that pin its contents.

An environment's name has a digest of these files, so a changed pin makes another environment.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench.harness.side import ROOT

PEERS = Path(__file__).parents[1] / "peers"
CACHE = ROOT / ".windrow" / "bench"
LIMIT_SECONDS = 1_800


def environment_folder(name: str, files: Path, make: Callable[[Path, Path], None]) -> Path:
    """Returns the environment's folder.

    If it isn't complete, `make(files, folder)` makes it.
    """
    pins = (path for path in sorted(files.iterdir()) if path.suffix in {".lock", ".xml", ".json"})
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins)).hexdigest()[:12]
    folder = CACHE / "environments" / f"{name}-{digest}"
    if not (folder / "whole").exists():
        print(f"Setting up {name}, once ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(files, folder)
        (folder / "whole").touch()
    return folder


def pinned_version(name: str, package: str) -> str:
    """Returns the version of a package that a peer's files pin.

    The file is a lock of pip, a pom of Maven or a package.json of npm.
    """
    files = [PEERS / name / file for file in ("requirements.lock", "pom.xml", "package.json")]
    forms = (
        rf"^{package}==(\S+)|<artifactId>{package}</artifactId><version>([^<]+)|\"{package}\":"
        r" \"([^\"]+)"
    )
    for match in (
        re.search(forms, file.read_text(encoding="utf-8"), re.MULTILINE)
        for file in files
        if file.exists()
    ):
        if match:
            return next(version for version in match.groups() if version)
    raise LookupError(f"{package} is not pinned for {name}")


def python(files: Path, folder: Path) -> None:
    """Makes a Python with the packages of a lock, each checked against its hash."""
    uv = Path(sys.executable).parent / "uv"
    _run(uv, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    _run(
        uv,
        "pip",
        "sync",
        "--quiet",
        "--python",
        folder / "venv/bin/python",
        "--require-hashes",
        files / "requirements.lock",
    )


def jars(files: Path, folder: Path) -> None:
    """Downloads the jars of a pom."""
    _run(
        "mvn",
        "-B",
        "-q",
        "-f",
        files / "pom.xml",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder / 'jars'}",
    )


def python_and_jars(files: Path, folder: Path) -> None:
    """Makes a Python with packages and downloads the jars."""
    python(files, folder)
    jars(files, folder)


def librdkafka(files: Path, folder: Path) -> None:
    """Builds librdkafka's performance program.

    The source comes from the npm package node-rdkafka, whose scripts aren't run. It has no TLS
    and no SASL, which need libraries and aren't used here. lz4 and snappy are part of the
    source.
    """
    for name in ("package.json", "package-lock.json"):
        shutil.copy(files / name, folder)
    _run(
        "npm",
        "ci",
        "--ignore-scripts",
        "--omit=dev",
        "--no-audit",
        "--no-fund",
        "--silent",
        cwd=folder,
    )
    source = folder / "node_modules/node-rdkafka/deps/librdkafka"
    off = [f"--disable-{name}" for name in ("ssl", "gssapi", "sasl", "curl", "zstd", "zlib")]
    _run("bash", "configure", "--enable-static", *off, cwd=source)
    _run("make", "-j2", "-C", "src", "librdkafka.a", cwd=source)
    _run("make", "-C", "examples", "rdkafka_performance", cwd=source)
    shutil.copy(source / "examples/rdkafka_performance", folder)
    shutil.rmtree(folder / "node_modules")


def debian(files: Path, folder: Path) -> None:
    """Unpacks Debian's packages and the dependencies that the system lacks.

    The package manager downloads the current list of packages, then the packages, and checks
    them against its keys. They are unpacked and not installed, so that root isn't needed.
    """
    lists, cache = folder / "lists", folder / "cache"
    for made_for in (lists / "partial", cache / "archives/partial"):
        made_for.mkdir(parents=True)
    apt_options = [f"Dir::State::lists={lists}", f"Dir::Cache={cache}", "Debug::NoLocking=1"]
    apt_get = ["apt-get", "-qq", *(word for option in apt_options for word in ("-o", option))]
    packages = json.loads((files / "package.json").read_text(encoding="utf-8"))["debian"]
    install_options = ["--yes", "--download-only", "--reinstall", "--no-install-recommends"]
    _run(*apt_get, "update")
    _run(*apt_get, "install", *install_options, *packages)
    for package in (cache / "archives").glob("*.deb"):
        _run("dpkg-deb", "-x", package, folder)
    shutil.rmtree(lists)
    shutil.rmtree(cache)


def _run(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command))} ended with"
            f" {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
