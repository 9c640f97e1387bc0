"""A new user in a shell: an empty home folder, and the commands of a page of the documentation."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.shape.readme import ROOT, project_paths
from windrow.ingest.kafka.embedded.server import find_jars

SECONDS = 900
"""The longest time of a shell in seconds, on a busy machine. It bounds a hang."""

PORT = "29092"
"""The port in the pages."""

OURS = ("DAGSTER_HOME", "WINDROW_HOME", "WINDROW_BOOTSTRAP", "WINDROW_STATE", "WINDROW_CRASH")
KEPT = (".config/pip", ".pip", ".config/uv", ".netrc", ".cache/pip", ".cache/uv")
"""The files of a home folder that configure or cache packages."""


def newcomer(folder: Path) -> dict[str, str]:
    """Makes an empty home folder and returns the environment of a new user.

    The user has the repository in `~/windrow`, a Python, uv, Java and Kafka's jars. The home
    folder has nothing else, except the settings of pip and uv.
    """
    home, tools = folder / "home", folder / "tools"
    (home / "windrow").mkdir(parents=True)
    for path in project_paths():
        target = home / "windrow" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
    for name in KEPT:
        if (source := Path.home() / name).exists():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(source)
    tools.mkdir()
    ours = Path(sys.prefix) / "bin"
    for name in ("uv", "uvx"):
        (tools / name).symlink_to(ours / name)
    (tools / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]  # noqa: SLF001
    path = [
        folder_name
        for folder_name in os.environ["PATH"].split(os.pathsep)
        if Path(folder_name) != ours
    ]
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment.pop("VIRTUAL_ENV", None)
    return environment | {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(tools), *path]),
        "UV_SYSTEM_CERTS": os.environ.get("UV_SYSTEM_CERTS", "true"),
        "WINDROW_KAFKA_JARS": str(find_jars()),
    }


def switched_on(environment: Path, env: dict[str, str]) -> dict[str, str]:
    """Returns the environment after `source .venv/bin/activate`."""
    return env | {"PATH": f"{environment / 'bin'}{os.pathsep}{env['PATH']}"}


@contextmanager
def other_terminal(command: str, folder: Path, env: dict[str, str]) -> Iterator[None]:
    """Runs a broker in another terminal until the block ends, which sends Ctrl-C.

    The block begins when the broker is up.
    """
    bash = ["bash", "-ec", f"exec {command.strip()}"]
    with subprocess.Popen(
        bash, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            first_line = process.stdout.readline()
            assert "Kafka answers on" in first_line, first_line
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            late.cancel()


def shell(typed: str, folder: Path, env: dict[str, str]) -> str:
    """Runs all commands in one shell and returns its stdout. A failed command fails the test."""
    bash = ["bash", "-euo", "pipefail", "-c", typed]
    done = subprocess.run(
        bash, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def elsewhere(typed: list[str]) -> list[str]:
    """Returns the commands with a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert any(PORT in block for block in typed)
    return [block.replace(PORT, str(port)) for block in typed]
