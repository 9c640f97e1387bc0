"""Secrets that a program prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.settings import secrets
from windrow.ingest.settings.secrets import InCommand, read, reference, written

CANARY = "C4nary-printed"


def python(code: str, *variables: str, lifetime: int = 300) -> InCommand:
    """Returns the reference to a program in Python."""
    return InCommand((sys.executable, "-c", code), variables, lifetime)


def test_a_program_prints_the_secret_and_gets_named_variables_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program gets the variables that its reference names, and no other secret of the process."""
    monkeypatch.setenv("ROLE", "reader")
    monkeypatch.setenv("OTHER_SECRET", CANARY)
    secret = python("import os; print(os.environ['ROLE'], 'OTHER_SECRET' in os.environ)", "ROLE")
    assert read(secret, "sasl.password") == "reader False"


def test_a_program_runs_once_in_its_lifetime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process keeps a secret for its reference's lifetime, and then runs the program again."""
    runs = tmp_path / "runs"
    code = f"p = open({str(runs)!r}, 'a+'); p.write('x'); p.seek(0); print(len(p.read()))"
    now = 0.0
    monkeypatch.setattr(secrets.time, "monotonic", lambda: now)
    secret = python(code, lifetime=60)
    assert [read(secret, "password") for _ in range(3)] == ["1", "1", "1"]
    now = 61.0
    assert read(secret, "password") == "2"
    assert read(secret, "password", renewed=True) == "3"
    assert read(secret, "password") == "3"


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (InCommand(("no-such-program-here",), (), 300), "No such file or directory"),
        (python(f"print({CANARY!r}); raise SystemExit(7)"), "it ended with code 7"),
        (python("pass"), "it printed nothing"),
        (python(f"print({CANARY!r} * 10_000)"), "it printed more than 65536 bytes"),
        (python("import sys; sys.stdout.buffer.write(b'\\xff')"), "it printed no text"),
        (python(f"while True: print({CANARY!r} * 1_000)"), "it printed more than 65536 bytes"),
        (python("import threading; threading.Event().wait()"), "it took longer than"),
        (python("import os, threading; os.close(1); threading.Event().wait()"), "it took longer"),
    ],
)
def test_a_program_that_gives_no_secret(
    secret: InCommand, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names program, setting and reason, and quotes nothing that was printed."""
    monkeypatch.setattr(secrets, "COMMAND_SECONDS", 1 if "wait" in str(secret) else 30)
    with pytest.raises(SpecError) as failed:
        read(secret, "sasl.password")
    assert reason in failed.value.message
    assert secret.arguments[0] in failed.value.message
    assert "sasl.password" in failed.value.message
    assert CANARY not in str(failed.value)


def test_a_reference_to_a_program() -> None:
    """A reference is read as it is written; one with a mistake is none."""
    form = {"command": ["aws", "token"], "env": ["AWS_PROFILE"], "lifetime_seconds": 600}
    secret = InCommand(("aws", "token"), ("AWS_PROFILE",), 600)
    assert reference(form) == secret
    assert written(secret) == form
    for wrong in ({"command": "aws token"}, {"command": []}, {**form, "shell": True}):
        assert reference(wrong) is None
