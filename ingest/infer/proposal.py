"""Proposal for a new pipeline: its columns, and its `decode` section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.formats.kinds import ASKING
from windrow.ingest.infer.candidates import (
    MOST_TYPES,
    Candidate,
    Refuses,
    TypeGuess,
    free_name,
    refuse_unusable,
)
from windrow.ingest.infer.json_documents import (
    candidates_of,
    guess_type,
    keys_are_data,
    parse_document,
    parse_json,
)
from windrow.ingest.infer.stated_types import row_candidates
from windrow.ingest.settings.templates import has_template

Document = Mapping[str, Any]

_WAY_OUT = (
    "Nothing was written. Keep the bytes with --format raw, or write the schema by hand"
    " (windrow init)."
)


class Setting(msgspec.Struct, frozen=True):
    """Value of a setting, with a comment for the spec."""

    value: Any
    comment: str = ""


_WORDS = (b"NaN", b"Infinity")
_NON_NUMERIC = {"allow_non_numeric_numbers": Setting(True, "NaN and infinities are floats")}


class KeyAndValue(msgspec.Struct, frozen=True):
    """Key and value of a message."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Proposal:
    """Proposal of a topic's columns and of the settings to read its messages.

    Attributes:
        candidates: the fields, with and without a column.
        source: the origin of the columns, in words.
        decode: the settings of the section `decode`, without the schema.
        hints: comments for the section `decode`.
        primary_key: the columns of the primary key; empty if rows don't replace each other.
        change_data: whether the messages are change events, so that a message without a
            value is normal.
    """

    candidates: tuple[Candidate, ...]
    source: str
    decode: Mapping[str, Setting]
    hints: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    change_data: bool = False

    @property
    def format(self) -> str:
        """Format of the values."""
        return str(self.decode["format"].value)

    @property
    def asks_registry(self) -> bool:
        """Whether decoding asks a schema registry."""
        key = self.decode.get("key")
        return not ASKING.isdisjoint({self.format, *([key.value["format"]] if key else [])})


def documents_of(messages: Sequence[KeyAndValue]) -> list[tuple[bytes | None, Document]]:
    """Returns the key and the value of each message whose value is a JSON object."""
    return [
        (message.key, parsed)
        for message in messages
        if message.value is not None and (parsed := parse_document(message.value)) is not None
    ]


def propose_documents(
    format_: str, messages: Sequence[KeyAndValue], schema: Mapping[str, Any] | None = None
) -> Proposal:
    """Proposes the fields of JSON documents and of their keys.

    Args:
        format_: the format.
        messages: the messages.
        schema: the schema that Connect wrote beside the documents; None if there is none.
    """
    pairs = documents_of(messages)
    documents = [parsed for _, parsed in pairs]
    candidates = candidates_of(documents) if schema is None else row_candidates(schema, "")
    has_non_numeric = any(
        word in message.value for message in messages for word in _WORDS if message.value
    )
    hints = []
    if schema is None and keys_are_data(documents):
        hints.append(
            f"the names of the {format_count(len(candidates), 'field')} seem to be data:"
            f" {_AS_ENTRIES}"
        )
    proposal = Proposal(
        tuple(candidates),
        f"guessed from {format_count(len(documents), 'message')}",
        {"format": Setting(format_), **(_NON_NUMERIC if has_non_numeric else {})},
        tuple(hints),
    )
    return with_keys(proposal, [key for key, _ in pairs])


def propose_one_column(format_: str, messages: int) -> Proposal:
    """Proposes a single column for the whole value, for the format `string` or `raw`."""
    kind = pa.string() if format_ == "string" else pa.binary()
    candidate = Candidate("value", TypeGuess(kind), nullable=False)
    source = f"one column for the whole value of {format_count(messages, 'message')}"
    return Proposal((candidate,), source, {"format": Setting(format_)})


_AS_ENTRIES = (
    "with --format string the table has each document as a text, to be taken apart after it"
)
KEEP_KEY = (
    "the keys are no columns: `metadata: {key: _key}` keeps their bytes; see also `windrow help"
    " formats`"
)


_WHOLE_KEY = "key"
"""Name of the column for keys that are a single value, unless the value has this name."""
_NUMBERS = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
"""Types of numbers in bytes, by their width in bytes."""
_BEGINS_OF_DOUBLES = {0x3F, 0x40, 0x41}
"""First bytes, without the sign, of doubles between about 0.00003 and eight billion."""


def without_key(proposal: Proposal) -> Proposal:
    """Adds the hint that the keys are in no column."""
    return replace(proposal, hints=(*proposal.hints, KEEP_KEY))


def with_keys(proposal: Proposal, keys: Sequence[bytes | None]) -> Proposal:
    """Adds the columns of the keys: the fields of JSON objects, or one column for other keys.

    If a message has no key, or if only some keys are JSON objects, a hint is added instead.
    """
    parsed = [None if key is None else parse_document(key) for key in keys]
    documents = [parsed_key for parsed_key in parsed if parsed_key]
    if documents and len(documents) == len(keys):
        return with_key(proposal, candidates_of(documents), "json")
    if not any(keys):
        return proposal
    if None in keys or any(parsed_key is not None for parsed_key in parsed):
        return without_key(proposal)
    format_, guess, words = _whole_key([key for key in keys if key is not None])
    column = Candidate(free_name(_WHOLE_KEY, proposal.candidates), guess, nullable=False)
    return with_key(proposal, [column], format_, comment=words)


def _whole_key(keys: Sequence[bytes]) -> tuple[str, TypeGuess, str]:
    """Returns the format and the type of keys that are a single value, and a comment.

    The type loses nothing of a key: numbers with a fraction become texts, and a number in
    bytes has all bytes of its key.
    """
    values = [parse_json(key) for key in keys]
    guess = guess_type(values)
    if all(isinstance(value, str | int) for value in values) and not guess.lenient:
        return "json", guess, "the whole key, a JSON value; other texts are dead letters"
    with suppress(UnicodeDecodeError):
        if all("".join(key.decode().split()).isprintable() for key in keys):
            return "string", TypeGuess(pa.string()), "the whole key, a text"
    same_width = len({len(key) for key in keys}) == 1
    kind = _NUMBERS.get(len(keys[0]), pa.binary()) if same_width else pa.binary()
    if kind == pa.int64() and all(key[0] & 0x7F in _BEGINS_OF_DOUBLES for key in keys):
        kind = pa.float64()
    words = "its bytes" if kind == pa.binary() else "a number as Kafka's serializers write it"
    return "raw", TypeGuess(kind), f"the whole key, {words}"


def with_key(
    proposal: Proposal,
    of_key: Sequence[Candidate],
    key_format: str,
    settings: Mapping[str, Setting] = {},
    comment: str = "the columns that come from the key",
) -> Proposal:
    """Adds the fields of the key as columns.

    They get a prefix if the value has fields of the same names.

    Args:
        proposal: the proposal for the value.
        of_key: the fields of the key.
        key_format: the format of the keys.
        settings: other settings of `decode.key`.
        comment: the comment on `decode.key`.
    """
    taken_names = {candidate.name.casefold() for candidate in proposal.candidates}
    prefixes = ("key" * (n > 0) + "_" * n for n in count())
    prefix = next(
        prefix
        for prefix in prefixes
        if taken_names.isdisjoint((prefix + candidate.name).casefold() for candidate in of_key)
    )
    columns = [replace(candidate, name=prefix + candidate.name) for candidate in of_key]
    fields = [candidate.name for candidate in columns if candidate.usable]
    decode = dict(proposal.decode)
    if fields:
        key = {"format": key_format, "fields": fields}
        key |= {"fields_prefix": prefix} if prefix else {}
        key |= {name: setting.value for name, setting in settings.items()}
        decode["key"] = Setting(key, comment)
        decode["fields_include"] = Setting("except_key")
    return replace(proposal, candidates=(*columns, *proposal.candidates), decode=decode)


def with_nullable_nan(proposal: Proposal, rows: pa.Table) -> Proposal:
    """Makes each column nullable that has NaN in a sampled row, because NaN requires this."""
    names = {
        field.name
        for field in rows.schema
        if pa.types.is_floating(field.type)
        and not field.nullable
        and pc.any(pc.is_nan(rows[field.name])).as_py()
    }
    candidates = (
        replace(candidate, nullable=True) if candidate.name in names else candidate
        for candidate in proposal.candidates
    )
    return replace(proposal, candidates=tuple(candidates)) if names else proposal


def without_repeated_key(proposal: Proposal, rows: pa.Table) -> Proposal:
    """Removes the key's columns if the value's columns have the same values in each row."""
    key = proposal.decode["key"].value if "key" in proposal.decode and rows.num_rows else {}
    fields, prefix = key.get("fields", ()), key.get("fields_prefix", "")
    texts = {name: [*map(str, rows[name].to_pylist())] for name in rows.column_names}
    others = {name: name.removeprefix(prefix) for name in fields if prefix}
    if [name.rstrip("_") for name in fields] == [_WHOLE_KEY]:
        same_texts = (n for n in texts if n != fields[0] and texts[n] == texts[fields[0]])
        others = dict.fromkeys(fields, next(same_texts, ""))
    if (
        not others
        or any(texts[name] != texts.get(counterpart) for name, counterpart in others.items())
        or any(
            candidate.name in others and candidate.guess.omitted
            for candidate in proposal.candidates
        )
    ):
        return proposal
    same = f"the keys are the same as the value's {', '.join(map(ascii, others.values()))}"
    return replace(
        proposal,
        candidates=tuple(
            candidate for candidate in proposal.candidates if candidate.name not in others
        ),
        decode={n: v for n, v in proposal.decode.items() if n not in {"key", "fields_include"}},
        hints=(*proposal.hints, same),
    )


def without_unusable(proposal: Proposal, refuses: Refuses, topic: str) -> Proposal:
    """Removes the types of fields that can't be a column, and these fields in `decode.key`.

    Args:
        proposal: the proposal.
        refuses: returns why a field can't be a column of the table.
        topic: the topic, for errors.

    Raises:
        SpecError: a field of the primary key can't be a column; no field can be a column;
            there are too many fields; or a field of CSV can't be a column, because its
            fields are identified by their order.
    """
    key = proposal.decode["key"].value["fields"] if "key" in proposal.decode else []
    named_fields = {*key, *proposal.primary_key}
    candidates = tuple(
        refuse_unusable(
            [
                replace(c, guess=_TEMPLATE)
                if c.name in named_fields and has_template(c.name)
                else c
                for c in proposal.candidates
            ],
            refuses,
        )
    )
    reasons = {
        candidate.name: candidate.guess.note for candidate in candidates if not candidate.usable
    }
    name = next((name for name in reasons if name not in key), None)
    if proposal.format == "csv" and name is not None:
        raise SpecError(
            f"{name!a} in --columns can't be a column: {reasons[name]}",
            "spec",
            "Nothing was written. Give each field a name of its own.",
        )
    unusable_key = next((name for name in proposal.primary_key if name in reasons), None)
    if unusable_key is not None:
        raise SpecError(
            f"The field {unusable_key!a} of the rows' primary key can't be a column:"
            f" {reasons[unusable_key]}",
            "spec",
            "Nothing was written. Write the spec by hand (windrow init).",
        )
    if len(candidates) > MOST_TYPES:
        raise SpecError(
            f"The messages of topic {topic} have"
            f" {format_count(len(candidates), 'different field')}, so their names seem to be data",
            "spec",
            _WAY_OUT,
        )
    if not any(candidate.usable for candidate in candidates if candidate.name not in key):
        summary = "; ".join(f"{name!a}: {note}" for name, note in list(reasons.items())[:5])
        raise SpecError(
            f"No field of topic {topic} can be a column" + (f": {summary}" if summary else ""),
            "spec",
            _WAY_OUT,
        )
    decode = dict(proposal.decode)
    lenient = {candidate.name for candidate in candidates if candidate.guess.lenient}
    if not lenient <= set(key):
        decode["coerce"] = Setting("lenient", "values of several kinds are texts")
    if key:
        setting = decode.pop("key")
        fields = [name for name in key if name not in reasons]
        coerce_settings = {} if lenient.isdisjoint(key) else {"coerce": "lenient"}
        if fields:
            decode["key"] = msgspec.structs.replace(
                setting, value={**setting.value, "fields": fields, **coerce_settings}
            )
        else:
            del decode["fields_include"]
    return replace(proposal, candidates=candidates, decode=decode)


_TEMPLATE = TypeGuess(None, "in a spec, its name would be a template")
