"""`windrow` as a process: its log, its document and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.airflow.world import NINE, SECRET, STUB, calls, commit_reply, failure_reply, pipeline
from windrow_airflow.process import Ended, Process, document_in, keys, summary, variables


def process(spec: Path, **env: str) -> Process:
    return Process([sys.executable, str(STUB), "run", str(spec)], env)


def test_log_and_document(tmp_path: Path) -> None:
    """Each log line is reported while the process runs; at its end come document and exit code.

    The environment's values are not on the command line.
    """
    log_lines = list[str]()
    spec = pipeline(tmp_path, "shop", {**commit_reply(NINE, 7), "says": ["one {KAFKA_X}", "two"]})
    ended = process(spec, KAFKA_X="secret").run(log_lines.append)
    assert (ended.code, log_lines) == (0, ["one secret", "two"])
    assert keys(ended.document) == [NINE, "batch-000000007"]
    assert summary(ended.document) == {
        "pipeline": "shop",
        "windows": 2,
        "recovered": 0,
        "messages": 22,
        "rows": 20,
        "dead_letters": 2,
        "skipped": 0,
        "late": 0,
        "partial": 0,
    }
    assert calls(spec) == [{"words": ["run", str(spec), "--json"], "kafka": {"KAFKA_X": "secret"}}]


def test_secrets_are_masked(tmp_path: Path) -> None:
    """The values of secret variables are masked in the log and in the error."""
    failed_reply = failure_reply(1)
    failed_reply["document"]["error"]["message"] = f"It is {SECRET}."
    log_lines = list[str]()
    spec = pipeline(tmp_path, "shop", {**failed_reply, "says": ["with {KAFKA_SASL_PASSWORD}"]})
    ended = process(spec, KAFKA_SASL_PASSWORD=SECRET).run(log_lines.append)
    assert (log_lines, ended.message) == (
        ["with ***"],
        "windrow ended with exit code 1: It is ***.",
    )


@pytest.mark.parametrize("secret", ["123456", "receipt", "2026-", "windows"])
def test_a_secret_within_the_document_changes_nothing(tmp_path: Path, secret: str) -> None:
    """A secret that also occurs in the document doesn't change the document."""
    reply = commit_reply(NINE)
    reply["document"]["windows"][0]["committed"]["receipt"]["counts"]["rows"] = 123456
    ended = process(pipeline(tmp_path, "shop", reply), KAFKA_SASL_PASSWORD=secret).run(print)
    assert (keys(ended.document), summary(ended.document)["rows"]) == ([NINE], 123456)


def test_a_secret_within_another_is_masked_with_it(tmp_path: Path) -> None:
    """If one secret begins with another one, the longer one is masked as a whole."""
    log_lines = list[str]()
    spec = pipeline(tmp_path, "shop", {**commit_reply(NINE), "says": ["{KAFKA_SASL_PASSWORD}."]})
    process(spec, KAFKA_A_TOKEN=SECRET[:9], KAFKA_SASL_PASSWORD=SECRET).run(log_lines.append)
    assert log_lines == ["***."]


def test_each_count_has_its_name() -> None:
    """The summary has each count under its own name."""
    counts = {"read": 1, "rows": 2, "dead": 3, "skipped": 4, "late": 5}
    document = commit_reply(NINE)["document"]
    document["windows"][0]["committed"]["receipt"]["counts"] = counts
    names = ("messages", "rows", "dead_letters", "skipped", "late")
    assert [summary(document)[name] for name in names] == [1, 2, 3, 4, 5]


def test_what_is_added_comes_before_what_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection's properties override the worker's environment variables."""
    monkeypatch.setenv("KAFKA_X", "of the worker")
    log_lines = list[str]()
    spec = pipeline(tmp_path, "shop", {**commit_reply(NINE), "says": ["{KAFKA_X}"]})
    process(spec, KAFKA_X="of the connection").run(log_lines.append)
    assert log_lines == ["of the connection"]


def test_failures_in_words(tmp_path: Path) -> None:
    """The message is that of windrow's error, or the kind of a bug."""
    ended = process(pipeline(tmp_path, "shop", failure_reply(1))).run(print)
    assert ended.message == "windrow ended with exit code 1: It is 1. Do this."
    assert Ended(70, {"error": {"kind": "KeyError"}}).message.endswith("exit code 70: KeyError")
    assert Ended(-9, {}).message == "windrow ended with exit code -9: the log says why"


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '{"windows": [', "null"])
def test_rubbish_is_no_document(text: str) -> None:
    """Output that isn't one JSON object counts as no document."""
    assert document_in(text, {}) == {}


def test_a_program_that_is_not_there() -> None:
    """A program that doesn't exist raises FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        Process(["/no/windrow"], {}).run(print)


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(130) if {ends} else None)
words = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
child = subprocess.Popen(words, stdout=subprocess.PIPE)
child.stdout.readline()  # before it is there, a signal may miss it
print("started", child.pid, file=sys.stderr, flush=True)
time.sleep(600)
"""


def is_over(pid: int) -> bool:
    """Returns whether a process ends within a minute."""
    end = time.monotonic() + 60
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
    return True


@pytest.mark.parametrize(("ends", "code"), [(True, 130), (False, -signal.SIGKILL)])
def test_an_interrupt_ends_the_whole_group(
    ends: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt ends the process and its children; a process that ignores it is killed."""
    monkeypatch.setattr("windrow_airflow.process.GRACE", 30 if ends else 0.5)
    started, log_lines = threading.Event(), list[str]()

    def say(line: str) -> None:
        log_lines.append(line)
        started.set()

    running = Process([sys.executable, "-c", STUBBORN.format(ends=ends)], {})
    endings = list[Ended]()
    thread = threading.Thread(target=lambda: endings.append(running.run(say)))
    thread.start()
    assert started.wait(60)
    running.interrupt()
    thread.join(60)
    child = int(log_lines[0].split()[1])
    assert [ended.code for ended in endings] == [code]
    assert is_over(child), "what it has started runs on"
    running.interrupt()  # a second interrupt has nothing to end


def test_an_interrupt_while_the_process_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that comes before Popen returns interrupts the process, too."""
    running = Process(["sh", "-c", "exec sleep 60"], {})

    def start_and_interrupt(*args: Any, **options: Any) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = popen(*args, **options)
        running.interrupt()
        return process

    popen = subprocess.Popen
    monkeypatch.setattr("windrow_airflow.process.subprocess.Popen", start_and_interrupt)
    assert running.run(print).code == -signal.SIGINT


def test_an_exception_ends_the_process() -> None:
    """An exception in the caller, such as Airflow's timeout, ends the process."""

    def timeout(*_: object) -> None:
        raise TimeoutError

    pids = list[int]()

    def say(line: str) -> None:
        if line.startswith("started"):  # its output after the interrupt comes here, too
            pids.append(int(line.split()[1]))
            os.kill(os.getpid(), signal.SIGUSR1)

    previous_handler = signal.signal(signal.SIGUSR1, timeout)
    try:
        with pytest.raises(TimeoutError):
            Process([sys.executable, "-c", STUBBORN.format(ends=True)], {}).run(say)
    finally:
        signal.signal(signal.SIGUSR1, previous_handler)
    assert is_over(pids[0])


def test_variables_of_a_connection() -> None:
    """Each property of a connection becomes an environment variable that a spec can use."""
    assert variables({"bootstrap.servers": "b:1", "sasl.password": "x", "retries": 3}) == {
        "KAFKA_BOOTSTRAP_SERVERS": "b:1",
        "KAFKA_SASL_PASSWORD": "x",
        "KAFKA_RETRIES": "3",
    }
