"""Loads a user's function that edits refused messages, and checks its results."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import SpecError, foreign_exceptions
from windrow.ingest.schema.messages import HEADERS

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class RefusedMessage:
    """A message as it is in the log, and the reason for its refusal.

    `dataclasses.replace` makes an edited message, with another key, value or headers.

    Attributes:
        schema_id: the id or GUID of its schema, if its format has a schema registry.

    Example:
        from dataclasses import replace
        import windrow

        def repair(message: windrow.RefusedMessage) -> windrow.RefusedMessage:
            return replace(message, value=(message.value or b"").replace(b"'", b'"'))

        pipeline = windrow.open_pipeline(windrow.load_spec("payments/defs.yaml"))
        window = windrow.read_receipts(pipeline)[0].receipt.window
        request = windrow.DeadReplayRequest("repair", edit=repair)
        print(windrow.replay_dead_letters(pipeline, window, request).edited, "were repaired")
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    stage: str
    reason: str
    detail: str | None
    schema_id: str | None = None


class _Payload(msgspec.Struct):
    """The parts of a message that an edit may change, with their types."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


Mask = npt.NDArray[np.bool_]

Edit = Callable[[RefusedMessage], RefusedMessage | None]
"""Returns the message, edited or unchanged; None: it stays a dead letter."""

_UNCHANGEABLE = ("topic", "partition", "offset", "timestamp")
_FUNCTION = "edit"


def load_edit(script: Path) -> Edit:
    """Loads the function `edit` of a Python file.

    Raises:
        SpecError: there is no such file or function, or the file can't be run.
    """
    if not script.is_file():
        raise SpecError(
            f"There is no script {script}",
            "spec",
            "Name a Python file that has a function edit(message).",
        )
    try:
        names = runpy.run_path(str(script), run_name=script.stem)
    except SyntaxError as error:
        raise SpecError(
            f"{script} is not Python: line {error.lineno}", "spec", "Fix the script."
        ) from None
    except foreign_exceptions() as error:  # a user's script may raise anything
        raise _failure_error(f"{script} can't be run", error, script) from None
    edit = names.get(_FUNCTION)
    if not callable(edit):
        raise SpecError(
            f"{script} has no function {_FUNCTION}",
            "spec",
            "Write: def edit(message): ... return message, or None.",
        )
    return _add_checks(edit, script)


def _add_checks(edit: Callable[[RefusedMessage], object], script: Path) -> Edit:
    """Returns the function with checks of its errors and results."""

    def call(message: RefusedMessage) -> RefusedMessage | None:
        try:
            edited = edit(message)
        except foreign_exceptions() as error:  # a user's function may raise anything
            raise _failure_error(f"{_FUNCTION} failed", error, script, message) from None
        mistake = None if edited is None else _describe_mistake(edited, message)
        if mistake is not None:
            raise _refusal_error(f"{_FUNCTION} in {script} {mistake}", message)
        return edited if isinstance(edited, RefusedMessage) else None

    return call


def _describe_mistake(edited: object, message: RefusedMessage) -> str | None:
    """Describes the mistake in a returned value, without the payload; None if there is none."""
    if not isinstance(edited, RefusedMessage):
        return f"returned {type(edited).__name__}, neither a message nor None"
    changed = next(
        (name for name in _UNCHANGEABLE if getattr(edited, name) != getattr(message, name)), None
    )
    if changed is not None:
        return f"changed the {changed}, which can't be changed"
    try:
        msgspec.convert(vars(edited), _Payload, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        return f"returned what no message can hold: {error}".replace("$.", "")
    return None


def _refusal_error(sentence: str, message: RefusedMessage) -> SpecError:
    return SpecError(
        sentence,
        "decode",
        "Nothing was committed. Fix the script, and replay the dead letters again.",
        message.topic,
        message.partition,
        message.offset,
    )


def _failure_error(
    failure: str, error: BaseException, script: Path, message: RefusedMessage | None = None
) -> SpecError:
    """Makes the error for a script's exception, without its text, which may quote a payload."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == script
    ]
    location = f"{script}:{lines[-1]}" if lines else str(script)
    sentence = f"{failure}: {type(error).__name__} at {location}"
    return (
        SpecError(sentence, "spec", "Fix the script.")
        if message is None
        else _refusal_error(sentence, message)
    )


def apply_edits(
    dead_letters: pa.RecordBatch, messages: pa.RecordBatch, edit: Edit
) -> tuple[pa.RecordBatch, Mask, Mask]:
    """Edits messages. Returns them, a mask of those to try, and a mask of those that changed.

    Args:
        dead_letters: the dead letters.
        messages: the same dead letters as messages.
        edit: the user's function.

    Raises:
        SpecError: the function failed, or returned an object that isn't a message.
    """
    originals = [_message(dead_letter) for dead_letter in dead_letters.to_pylist()]
    edits = [edit(message) for message in originals]
    tried = np.array([message is not None for message in edits])
    edited_messages = [
        old if new is None else new for old, new in zip(originals, edits, strict=True)
    ]
    changed = np.array(
        [
            _payload(old) != _payload(new)
            for old, new in zip(originals, edited_messages, strict=True)
        ]
    )
    columns = {
        "key": pa.array([m.key for m in edited_messages], pa.binary()),
        "value": pa.array([m.value for m in edited_messages], pa.binary()),
        "headers": pa.array([_headers(m.headers) for m in edited_messages], HEADERS),
    }
    arrays = [columns.get(name, messages[name]) for name in messages.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=messages.schema), tried, changed


def _payload(message: RefusedMessage) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
    return message.key, message.value, tuple(message.headers)


def _message(dead_letter: dict[str, object]) -> RefusedMessage:
    headers = tuple((header["key"], header["value"]) for header in dead_letter["headers"])  # type: ignore[attr-defined]
    plain = ("key", "value", "stage", "reason", "detail", "schema_id")
    known_fields = {name: dead_letter[f"_{name}"] for name in _UNCHANGEABLE} | {
        name: dead_letter[name] for name in plain
    }
    return RefusedMessage(headers=headers, **known_fields)  # type: ignore[arg-type]


def _headers(headers: Sequence[Header]) -> list[dict[str, object]]:
    return [{"key": name, "value": value} for name, value in headers]
