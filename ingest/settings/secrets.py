"""Secrets by reference: `{env: NAME}`, `{file: PATH}` or `{command: [PROGRAM, ...]}`.

A spec also writes `{secret: NAME}`: the reference with that name in a windrow.yaml.

Each process that needs the secret reads it. Tasks are pickled on their way to workers, and
Spark may store pickles on disk, so tasks contain references, never secrets. Workers import
this module, so it doesn't import a spec's models.
"""

from __future__ import annotations

import base64
import html
import json
import math
import os
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, quote_plus

import msgspec
from msgspec import Meta

from windrow.ingest.errors import SpecError
from windrow.ingest.settings.paths import absolute

T = TypeVar("T")


class InEnvironment(msgspec.Struct, frozen=True):
    """The secret is the value of an environment variable."""

    variable: str


class InFile(msgspec.Struct, frozen=True):
    """The secret is the text of a file, without its last line break.

    Attributes:
        path: the absolute path, which must be the same on every machine.
    """

    path: str


class InCommand(msgspec.Struct, frozen=True):
    """The secret is what a program prints, without its last line break.

    The program runs without a shell, in the process that needs the secret.

    Attributes:
        arguments: the program and its arguments.
        variables: names of the environment variables that it gets, besides
            `_COMMAND_VARIABLES`.
        lifetime: seconds for which a process keeps the secret before it runs the program
            again.
    """

    arguments: tuple[str, ...]
    variables: tuple[str, ...]
    lifetime: int


class _WrittenCommand(msgspec.Struct, forbid_unknown_fields=True):
    command: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
    env: tuple[str, ...] = ()
    lifetime_seconds: Annotated[int, Meta(ge=1)] = 300

    def secret(self) -> InCommand:
        return InCommand(self.command, self.env, self.lifetime_seconds)


Secret = InEnvironment | InFile | InCommand

FORMS = "{env: NAME}, {file: PATH} or {secret: NAME}"
"""The ways to write a reference in a spec."""

SHARED_FORMS = "{env: NAME}, {file: PATH}, {secret: NAME} or {command: [PROGRAM, ...]}"
"""The ways to write a reference in a windrow.yaml."""

_COMMAND_VARIABLES = ("PATH", "HOME", "LANG", "TZ")
"""Environment variables that each command gets."""

COMMAND_SECONDS = 30
"""Timeout of a command."""

_COMMAND_BYTES = 64 * 1024
"""Most bytes that a command may print."""

_LEAST_SECONDS = 60
"""A command runs again if the token that it printed is valid for less than this."""

_EVERYWHERE = (
    "Have it there, readable, on every machine that windrow runs on: Spark's workers read it"
    " themselves."
)


_find_named: ContextVar[Callable[[str], Secret] | None] = ContextVar("find_named", default=None)
"""Finds the secrets of the windrow.yaml, while a file of settings is being read."""


@contextmanager
def named_secrets(find: Callable[[str], Secret] | None) -> Iterator[None]:
    """Lets `named_or_reference` read `{secret: NAME}`.

    Args:
        find: returns the secret with a name, or raises ValueError; None: no secret has a name.
    """
    token = _find_named.set(find)
    try:
        yield
    finally:
        _find_named.reset(token)


def named_or_reference(written: object) -> Secret | None:
    """Reads a reference, or `{secret: NAME}`; None if it is neither.

    Raises:
        ValueError: there is no secret with this name.
    """
    if not isinstance(written, Mapping) or [*written] != ["secret"]:
        return reference(written)
    find = _find_named.get()
    if find is None:
        raise ValueError("can't be named here: only a spec names secrets of its windrow.yaml")
    return find(str(written["secret"]))


def reference(written: object) -> Secret | None:
    """Reads a reference from a mapping; None if it isn't a reference."""
    if not isinstance(written, Mapping):
        return None
    if "command" in written:
        return _command(written)
    if len(written) != 1:
        return None
    [(form, where)] = written.items()
    if not isinstance(where, str) or not where or "\0" in where:
        return None
    if form == "env":
        return InEnvironment(where)
    return InFile(where) if form == "file" else None


def _command(written: Mapping[str, Any]) -> InCommand | None:
    try:
        return msgspec.convert(written, _WrittenCommand).secret()
    except msgspec.ValidationError:
        return None


def in_folder(secret: T, folder: Path) -> T | InFile:
    """Makes the path of a secret's file absolute, relative to a folder.

    Other secrets are returned unchanged.
    """
    return InFile(absolute(secret.path, folder)) if isinstance(secret, InFile) else secret


def written(value: object) -> object:
    """Returns a setting as it is written in YAML: a secret as its reference, others unchanged."""
    if isinstance(value, InEnvironment):
        return {"env": value.variable}
    if isinstance(value, InCommand):
        return {
            "command": list(value.arguments),
            "env": list(value.variables),
            "lifetime_seconds": value.lifetime,
        }
    return {"file": value.path} if isinstance(value, InFile) else value


_TOKEN = re.compile(r"\beyJ[\w-]{9,}[\w.-]*|(?<=\bBearer )[\w.~+/=-]{16,}")
"""Matches a JWT, also the beginning of one, and a token in a header.

A provider of tokens or a client makes them, so no setting knows them.
"""


def masked(text: str, secrets: Iterable[str], mask: str = "***") -> str:
    """Replaces secrets and tokens in a text by a mask.

    Servers and libraries repeat requests in their errors, so a secret is replaced in other forms,
    too: percent-encoded, as JSON, in HTML, as Python's `repr`, and in base64. A secret of less
    than 6 characters is replaced only where it is a whole word: the password "post" isn't a part
    of "postgres". Longer secrets go first, because one may be the beginning of another.
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = re.sub(_pattern(secret), lambda _: mask, text)
    return _TOKEN.sub("***", text)


def _pattern(secret: str) -> str:
    """Returns the pattern of a secret in each form in which it may be sent."""
    if len(secret) < 6:
        return rf"(?<!\w){re.escape(secret)}(?!\w)"
    form = secret.encode(errors="surrogatepass")  # a variable may hold what is no text
    in_json = json.dumps(secret)[1:-1]
    texts = [secret, in_json, json.dumps(in_json)[1:-1], repr(secret)[1:-1], html.escape(secret)]
    percent_encoded = [quote(form, safe=""), quote(form), quote_plus(form)]
    coded = [
        _base64_pattern(text, shift)
        for text in (form, percent_encoded[0].encode())
        for shift in (0, 1, 2)
    ]
    in_any_case = [f"(?i:{re.escape(text)})" for text in percent_encoded]
    return "|".join((*in_any_case, *map(re.escape, sorted(texts, key=len, reverse=True)), *coded))


def _base64_pattern(text: bytes, shift: int) -> str:
    """Returns the pattern of a text in base64, which begins `shift` bytes behind a third byte.

    It has the characters that other bytes before and behind the text don't change.
    """
    coded = base64.b64encode(b" " * shift + text).decode()
    whole = coded[-(-shift * 8 // 6) : (shift + len(text)) * 8 // 6]
    return whole.replace("+", "[+-]").replace("/", "[/_]")


def read(secret: Secret, setting: str, *, renewed: bool = False) -> str:
    """Reads the secret now, in this process.

    Args:
        secret: the reference.
        setting: the name of the setting, for errors.
        renewed: True to run a program again, though its last output is still kept.

    Raises:
        SpecError: the variable isn't set, the file can't be read, or the program fails.
    """
    if isinstance(secret, InEnvironment):
        value = os.environ.get(secret.variable)
        if not value:
            raise SpecError(
                f"the environment variable {secret.variable}, which {setting} refers to, isn't set"
                " in this process",
                "spec",
                "Set it wherever windrow runs, for Spark's workers too: they read it themselves.",
            )
        return value
    if isinstance(secret, InCommand):
        return _COMMANDS.read(secret, lambda: _run(secret, setting), renewed=renewed)
    try:
        value = Path(secret.path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SpecError(
            f"the file {secret.path}, which {setting} refers to, can't be read here: {reason}",
            "spec",
            _EVERYWHERE,
        ) from None
    if not value:
        raise SpecError(
            f"the file {secret.path}, which {setting} refers to, is empty", "spec", _EVERYWHERE
        )
    return value


class _Claims(msgspec.Struct):
    exp: float


def claimed_expiry(token: str) -> float | None:
    """Returns the end of a token's lifetime in seconds since 1970, of a JWT with a claim `exp`."""
    try:
        _header, claims, _signature = token.split(".")
        padded = claims + "=" * (-len(claims) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims).exp
    except (msgspec.MsgspecError, ValueError):
        return None


class KeptSecrets:
    """Secrets that this process keeps, each for a time of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[str, float]] = {}

    def read(self, key: Hashable, fetch: Callable[[], tuple[str, float]], *, renewed: bool) -> str:
        """Returns a secret.

        Args:
            key: what the secret is of.
            fetch: gets the secret, and the seconds for which it is kept.
            renewed: True to fetch it, though it is still kept.
        """
        # Locked during the fetch, so that several clients wait for one.
        with self._lock:
            value, deadline = self._kept.get(key, ("", 0.0))
            if renewed or time.monotonic() >= deadline:
                value, seconds = fetch()
                self._kept[key] = value, time.monotonic() + seconds
            return value


_COMMANDS = KeptSecrets()
"""What commands have printed."""


def _run(secret: InCommand, setting: str) -> tuple[str, float]:
    value = _printed(secret, setting)
    valid_seconds = (claimed_expiry(value) or math.inf) - time.time() - _LEAST_SECONDS
    return value, min(secret.lifetime, valid_seconds)


def _printed(secret: InCommand, setting: str) -> str:
    """Runs a command and returns what it printed.

    Raises:
        SpecError: it fails; the text quotes nothing that it printed.
    """
    program = secret.arguments[0]
    names = {*_COMMAND_VARIABLES, *secret.variables}
    try:
        with subprocess.Popen(
            secret.arguments,
            env={name: os.environ[name] for name in names & os.environ.keys()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                output = _read_output(process)
            finally:
                process.kill()
        value = output.decode().rstrip("\r\n")
    except OSError as error:
        reason = error.strerror or "it can't be started"
    except subprocess.TimeoutExpired:
        reason = f"it took longer than {COMMAND_SECONDS} s"
    except UnicodeDecodeError:
        reason = "it printed no text"
    else:
        if len(output) > _COMMAND_BYTES:
            reason = f"it printed more than {_COMMAND_BYTES} bytes"
        elif process.returncode != 0:
            reason = f"it ended with code {process.returncode}"
        elif value:
            return value
        else:
            reason = "it printed nothing"
    raise SpecError(
        f"the program {program}, which {setting} refers to, gave no secret: {reason}",
        "spec",
        "Run it by hand on this machine. It runs without a shell, with the environment variables"
        f" {', '.join(sorted(names))} alone: name others by env, beside command. Spark's workers"
        " run it themselves, and need it too.",
    )


def _read_output(process: subprocess.Popen[bytes]) -> bytes:
    """Returns what a program prints until its end, or a little more than `_COMMAND_BYTES` of it.

    Raises:
        subprocess.TimeoutExpired: it doesn't end in time.
    """
    assert process.stdout is not None
    ends_at, output = time.monotonic() + COMMAND_SECONDS, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= _COMMAND_BYTES:
            if not selector.select(ends_at - time.monotonic()):
                raise subprocess.TimeoutExpired(process.args, COMMAND_SECONDS)
            part = os.read(process.stdout.fileno(), _COMMAND_BYTES)
            if not part:
                process.wait(ends_at - time.monotonic())
                break
            output += part
    return output
