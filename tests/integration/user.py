"""A user who types `windrow` in a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.command import run_command
from tests.commands import with_spec
from tests.integration.harness import PipelineSetup

HERE = Path(__file__).parent
HOURLY = "grid: hourly, start: 2026-01-05T00:00:00Z, delay: 1m"
ELSEWHERE = {"DAGSTER_HOME", "WINDROW_STATE", "WINDROW_CRASH"}
"""Variables that would give the command another state, or crash it."""


class User:
    """A user with a spec in a folder."""

    def __init__(
        self, bootstrap: str, topic: str, folder: Path, source: str = "", window: str = HOURLY
    ) -> None:
        """Writes the spec of `setup` as YAML.

        Args:
            bootstrap: the broker.
            topic: the topic.
            folder: the folder of the spec.
            source: further options of the source.
            window: the `window` section.
        """
        self.setup = PipelineSetup(bootstrap, topic, folder)
        self.folder = folder
        (folder / "things.py").write_text((HERE / "things.py").read_text())
        (folder / "things.yaml").write_text(
            "id: things\nsource: {bootstrap_servers: '{{ env.BROKER }}', topic:"
            f" {topic}{source and ', '}{source}}}\nwindow: {{{window}}}\ndecode: {{schema:"
            " 'things.py:Thing'}\nsink: {kind: delta, path: ./things}\nstate:"
            " ./state.db\nlimits: {max_dead_ratio: 0.1}\n"
        )
        (folder / ".env").write_text(f"BROKER={bootstrap}\n")

    def starts(self, *words: str, spec: bool = True, crash: str = "") -> subprocess.Popen[str]:
        """Starts the command with --json in a process of its own.

        Args:
            words: the arguments.
            spec: whether the spec is added to the arguments.
            crash: WINDROW_CRASH for the command and, through the JVM, for Spark's workers.
        """
        command = [
            str(Path(sys.executable).parent / "windrow"),
            *(with_spec(words, "things.yaml") if spec else words),
            "--json",
        ]
        env = {name: value for name, value in os.environ.items() if name not in ELSEWHERE} | (
            {"WINDROW_CRASH": crash} if crash else {}
        )
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def types(self, *words: str, code: int = 0) -> Any:
        """Runs the command in this process, on the existing Spark session.

        Returns:
            The printed document, after a check of the exit code.
        """
        with chdir(self.folder), patch.dict(os.environ):
            for name in ELSEWHERE:
                os.environ.pop(name, None)
            done = run_command(*with_spec(words, "things.yaml"), "--json")
        assert done.exit_code == code, (done.exit_code, done.output)
        return json.loads(done.stdout)

    def starts_and_ends(
        self, *words: str, code: int = 0, spec: bool = True, crash: str = ""
    ) -> Any:
        """Runs the command to its end in a process of its own, with its own Spark."""
        with self.starts(*words, spec=spec, crash=crash) as command:
            try:
                out, err = command.communicate(timeout=540)
            except BaseException:
                command.kill()
                raise
        assert command.returncode == code, (command.returncode, out, err)
        return json.loads(out)
