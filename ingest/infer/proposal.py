"""A proposal for a new pipeline: its columns, and its `decode` section."""

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
from windrow.ingest.settings.templates import has_template

Document = Mapping[str, Any]

_WAY_OUT = (
    "Nothing was written. Keep the bytes with --format raw, or write the schema by hand"
    " (windrow init)."
)


class Setting(msgspec.Struct, frozen=True):
    """A setting's value, with a comment for the spec."""

    value: Any
    comment: str = ""


_WORDS = (b"NaN", b"Infinity")
_NON_NUMERIC = {"allow_non_numeric_numbers": Setting(True, "NaN and infinities are floats")}


class KeyAndValue(msgspec.Struct, frozen=True):
    """The parts of a message that say how to read it."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Proposal:
    """The columns of a topic, and how to read its messages.

    `source`: the origin of the columns, for people; `decode`: the settings of the section
    `decode` without the schema; `hints`: comments for it; `primary_key`: empty if rows
    don't replace each other; `change_data`: whether a message without a value is normal.
    """

    candidates: tuple[Candidate, ...]
    source: str
    decode: Mapping[str, Setting]
    hints: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    change_data: bool = False

    @property
    def format(self) -> str:
        """The format of the values."""
        return str(self.decode["format"].value)

    @property
    def asks_registry(self) -> bool:
        """Returns whether decoding asks a schema registry."""
        key = self.decode.get("key")
        return not ASKING.isdisjoint({self.format, *([key.value["format"]] if key else [])})


def documents_of(messages: Sequence[KeyAndValue]) -> list[tuple[bytes | None, Document]]:
    """The messages whose values are JSON objects, each with its key."""
    return [
        (message.key, parsed)
        for message in messages
        if message.value is not None and (parsed := parse_document(message.value)) is not None
    ]


def propose_documents(format_: str, messages: Sequence[KeyAndValue]) -> Proposal:
    """Proposes the fields of JSON documents, and of keys that are documents."""
    pairs = documents_of(messages)
    documents = [parsed for _, parsed in pairs]
    candidates = candidates_of(documents)
    has_non_numeric = any(
        word in message.value for message in messages for word in _WORDS if message.value
    )
    hints = []
    if all(parsed_document.keys() == {"schema", "payload"} for parsed_document in documents):
        hints.append(_CONNECT)
    if keys_are_data(documents):
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
    """Proposes one column for the whole value: `string` or `raw`."""
    kind = pa.string() if format_ == "string" else pa.binary()
    candidate = Candidate("value", TypeGuess(kind), nullable=False)
    source = f"one column for the whole value of {format_count(messages, 'message')}"
    return Proposal((candidate,), source, {"format": Setting(format_)})


_CONNECT = (
    "each message has its schema beside its payload, as Kafka Connect writes them: with"
    " schemas.enable: false in the converter the payload's fields are columns (`windrow help"
    " formats` says how its dates and decimals are read)"
)
_AS_ENTRIES = (
    "with --format string the table has each document as a text, to be taken apart after it"
)
KEEP_KEY = (
    "the keys are no columns: `metadata: {key: _key}` keeps their bytes; see also `windrow help"
    " formats`"
)


_WHOLE_KEY = "key"
"""The name of the column of keys that are one value, unless the value has it."""
_NUMBERS = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
"""The types of numbers in bytes, by their width."""
_BEGINS_OF_DOUBLES = {0x3F, 0x40, 0x41}
"""The first bytes, without the sign, of doubles between some 0.00002 and eight billion."""


def without_key(proposal: Proposal) -> Proposal:
    """Adds the hint that keys are left out."""
    return replace(proposal, hints=(*proposal.hints, KEEP_KEY))


def with_keys(proposal: Proposal, keys: Sequence[bytes | None]) -> Proposal:
    """Adds the columns of the keys: the fields of JSON objects, or one column for other keys.

    Keys stay out, with a hint, if a message has none, or if only some are JSON objects.
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
    """The format and the type of keys that are one value each, with a comment for the spec.

    The type loses nothing of a key: numbers with a fraction stay texts, and numbers in bytes
    have all the bytes.
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

    `settings`: more settings of `decode.key`; `comment`: that of `decode.key`.
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
    """Makes the columns nullable that have NaN in a sampled row: NaN needs a nullable column."""
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
    """Leaves out the columns of the key where each sampled row has their values in others."""
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
    """Leaves out fields that can't be a column, also in `decode.key`.

    `refuses`: as in `refuse_unusable`.

    Raises:
        SpecError: the primary key has such a field, no field can be a column, or there
            are too many; or one of CSV can't, whose fields are told by their order.
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
            f" {format_count(len(candidates), 'different field')}, so"
            " their names seem to be data",
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
