"""Starts `windrow` as a process, in any environment. This module doesn't need Airflow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

REFUSED, WRONG_SPEC, UNREACHABLE, TOO_EARLY, BUG = 1, 2, 3, 4, 70
"""Exit codes of `windrow`."""

GRACE = 50.0
"""Seconds that an interrupted process has to end, before it is killed.

Airflow kills the task itself after `[core] killed_task_cleanup_time`, by default 60.
"""


@dataclass(frozen=True)
class Ended:
    """The end of a process.

    Attributes:
        code: its exit code; a negative one is the signal that killed it.
        document: the JSON document that it printed; empty if the output isn't one.
    """

    code: int
    document: Mapping[str, Any]

    @property
    def message(self) -> str:
        """The reason of the failure, in one paragraph."""
        error = self.document.get("error", {})
        text = error.get("message") or error.get("kind") or "the log says why"
        return f"windrow ended with exit code {self.code}: {text}"


class Process:
    """A `windrow` process in its own process group."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        """Makes the process, without starting it.

        Args:
            words: the words of the command.
            env: variables that are added to the environment of this process.
        """
        self._words = [*words, "--json"]
        self._added = dict(env)
        self._process: subprocess.Popen[str] | None = None
        self._is_interrupted = False

    def run(self, say: Callable[[str], None]) -> Ended:
        """Starts the process and waits for its end.

        Args:
            say: called with each line of its log.

        Raises:
            OSError: the program can't be started.
        """
        # A file, not a pipe: reading a pipe ends only when all processes that have it, such as a
        # JVM, have ended.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as document:
            process = self._process = subprocess.Popen(
                self._words,
                env={**os.environ, **self._added},
                stdin=subprocess.DEVNULL,
                stdout=document,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            # 1. Popen starts the process. 2. Airflow's signal comes, and its handler calls
            # `interrupt`, which has no process yet. 3. Popen returns.
            if self._is_interrupted:
                self.interrupt()
            log = threading.Thread(target=self._follow, args=(process.stderr, say), daemon=True)
            log.start()
            try:
                code = self._wait(process)
            except BaseException:  # for instance, a timeout of Airflow
                self.interrupt()
                raise
            log.join(5)
            document.seek(0)
            return Ended(code, document_in(document.read(), self._added))

    def _follow(self, stderr: IO[str], say: Callable[[str], None]) -> None:
        with stderr as lines:
            for line in lines:
                say(mask_secrets(line.rstrip(), self._added))

    @staticmethod
    def _wait(process: subprocess.Popen[str]) -> int:
        """Waits in small steps, because a signal handler may call `interrupt` during the wait.

        `Popen.wait` without a timeout keeps a lock, so `interrupt` would not notice the
        end.
        """
        while (code := process.poll()) is None:
            time.sleep(0.05)
        return code

    def interrupt(self) -> None:
        """Asks the process and its children to end, as Ctrl-C does, and waits for the process."""
        self._is_interrupted = True
        if self._process is None or self._process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
            end = time.monotonic() + GRACE
            while self._process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)


def unstartable(program: str, error: OSError) -> str:
    """Returns the sentence about a program that doesn't exist, or may not be run."""
    return (
        f"{program} can't be started on this worker: {error.strerror}. Give the place of windrow"
        " there as `command`."
    )


def document_in(text: str, env: Mapping[str, str]) -> Mapping[str, Any]:
    """Returns the JSON document in the output; empty if the whole output isn't a document.

    Only the sentence of its error is masked, because only that is shown, and a short secret
    may also occur in any number.
    """
    with suppress(ValueError):
        document = json.loads(text)
        if isinstance(document, dict):
            if message := document.get("error", {}).get("message"):
                document["error"]["message"] = mask_secrets(message, env)
            return document
    return {}


def summary(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a few numbers of a run's document, for XCom and asset events.

    The receipts stay in the table. Airflow keeps each event for ever, in a row of its
    database.
    """
    windows = document.get("windows", [])
    receipts = [window["committed"]["receipt"] for window in windows]
    figures = {
        "pipeline": document.get("pipeline"),
        "windows": len(receipts),
        "recovered": sum(window["recovered"] for window in windows),
        **{
            name: sum(receipt["counts"][field] for receipt in receipts)
            for name, field in _COUNTS.items()
        },
        "partial": sum(bool(receipt.get("partial")) for receipt in receipts),
    }
    if len(receipts) == 1:
        (receipt,) = receipts
        figures |= {
            "generation": receipt["generation"],
            "table_version": windows[0]["committed"]["version"],
            "digest": receipt["digest"],
        }
    return figures


_COUNTS = {
    "messages": "read",
    "rows": "rows",
    "dead_letters": "dead",
    "skipped": "skipped",
    "late": "late",
}


def keys(document: Mapping[str, Any]) -> list[str]:
    """Returns the windows of a run's document, as windrow and Airflow's partitions name them."""
    starts = [
        window["committed"]["receipt"]["plan"]["window"]["start"]
        for window in document.get("windows", [])
    ]
    return [f"batch-{start:09d}" if isinstance(start, int) else str(start) for start in starts]


def variables(extra: Mapping[str, Any]) -> dict[str, str]:
    """Converts the properties of a connection to Kafka to variables: `KAFKA_SASL_PASSWORD`."""
    return {
        "KAFKA_" + name.upper().replace(".", "_"): value
        if isinstance(value, str)
        else json.dumps(value)
        for name, value in extra.items()
    }


def mask_secrets(text: str, env: Mapping[str, str]) -> str:
    """Returns the text without the values of variables whose names mark them as secret.

    Airflow's own masking doesn't reach each copy of a task's log, such as the copy in the
    scheduler's output. Like Airflow's, it leaves values of less than five characters.
    """
    secrets = (v for name, v in env.items() if any(part in name for part in _SECRET) and len(v) > 4)
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


_SECRET = ("PASSWORD", "SECRET", "TOKEN", "KEY", "JAAS")
