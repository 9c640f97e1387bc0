"""Forms of values around rows: codecs, several documents in a value, objects around a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import msgspec

from windrow.ingest.formats.several_documents import documents_of_value
from windrow.ingest.formats.shared.codecs import open_codecs
from windrow.ingest.formats.shared.connect_types import PAYLOAD, SCHEMA
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.infer.json_documents import keys_are_data, parse_document
from windrow.ingest.infer.proposal import KeyAndValue, Setting, documents_of
from windrow.ingest.schema.message_fields import Codec, DocumentForm

_MOST_CODECS = 3
"""The most codecs of a value that are looked for."""
_BEGINS = (b"{", b"[", b'"', b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""Beginnings of what may be in a codec that any text or bytes could seem to be in."""
_CERTAIN = {"gzip", "zstd"}
"""Codecs that nothing else seems to be in, because their bytes begin with a number of their own."""
_ROOTS = {"body", "data", "detail", "event", "message", "payload", "record"}
"""Names of an only field that has the row; under another name it is a column."""
_CLOUD_EVENT = {"specversion", "id", "source", "type", "data"}
"""Fields of a CloudEvent in JSON, whose row is in `data`."""


class ValueForms(msgspec.Struct, frozen=True):
    """Messages without what is around their rows.

    Attributes:
        messages: the messages, one for each document; their values are the rows.
        settings: the settings of `decode` that take the rows out.
        schema: the schema that Connect wrote beside each row; None if there is none.
        hints: comments for the section `decode`.
    """

    messages: Sequence[KeyAndValue]
    settings: Mapping[str, Setting]
    schema: Mapping[str, Any] | None = None
    hints: tuple[str, ...] = ()


def recognise_forms(messages: Sequence[KeyAndValue]) -> ValueForms:
    """Returns the messages out of their codecs, one for each document, as most of them are."""
    messages, codecs = _open_all_codecs(messages)
    settings = {"codecs": Setting(codecs, "what the values are wrapped in")} if codecs else {}
    for form in get_args(DocumentForm):
        parts = [(m, _objects_of_value(m.value, form)) for m in messages if m.value is not None]
        if 2 * sum(len(documents) > (form == "lines") for _, documents in parts) > len(parts):
            settings["rows"] = Setting(form, "a value has several rows")
            messages = [KeyAndValue(m.key, d) for m, documents in parts for d in documents]
    return ValueForms(messages, settings)


def take_inside(forms: ValueForms) -> ValueForms:
    """Takes rows out of the objects around them, if there are any."""
    documents = [document for _, document in documents_of(forms.messages)]
    names = {*documents[0]} if documents else set()
    if all(document.keys() == {SCHEMA, PAYLOAD} for document in documents) and documents:
        schemas = [d[SCHEMA] for d in documents if isinstance(d[SCHEMA], dict)]
        if schemas and isinstance(documents[-1][PAYLOAD], dict):
            setting = Setting(True, "each row has its schema beside it")
            settings = {**forms.settings, "schema_include": setting}
            return ValueForms(_take_field(forms.messages, PAYLOAD), settings, schemas[-1])
    is_only = len(names) == 1 and names <= _ROOTS
    if not is_only and not names >= _CLOUD_EVENT:
        return forms
    root = min(names) if is_only else "data"
    rows = [row for d in documents if isinstance(row := d.get(root), dict) and row]
    if not rows or len(rows) < len(documents) or keys_are_data(rows):
        return forms
    beside = sorted({name for document in documents for name in document} - {root})
    hint = f"{', '.join(beside)} beside {root}: metadata path makes columns of them"
    return ValueForms(
        _take_field(forms.messages, root),
        {**forms.settings, "root": Setting(root, "the object that has the columns")},
        hints=(hint,) if beside else (),
    )


def _open_all_codecs(messages: Sequence[KeyAndValue]) -> tuple[Sequence[KeyAndValue], list[Codec]]:
    """Returns the messages with opened values, and the codecs that most values are in."""
    codecs: list[Codec] = []
    while len(codecs) < _MOST_CODECS:
        values = [m.value for m in messages if m.value is not None]
        codec = next((codec for codec in get_args(Codec) if _are_in_codec(values, codec)), None)
        if codec is None:
            break
        codecs.append(codec)
        messages = _change_values(messages, partial(open_codecs, codecs=[codec]))
    return messages, codecs


def _are_in_codec(values: Sequence[bytes], codec: Codec) -> bool:
    """Returns whether more than half of the values are in a codec."""
    opened = 0
    for value in values:
        try:
            inside = open_codecs(value, [codec])
        except RefusedValueError:
            continue
        opened += codec in _CERTAIN or inside.lstrip().startswith(_BEGINS)
    return 2 * opened > len(values)


def _objects_of_value(value: bytes | None, form: DocumentForm) -> list[bytes]:
    """Returns the objects in a value; empty if something else is in it."""
    try:
        documents = documents_of_value(value or b"", form)
    except RefusedValueError:
        return []
    return documents if all(parse_document(d) is not None for d in documents) else []


def _take_field(messages: Sequence[KeyAndValue], name: str) -> list[KeyAndValue]:
    """Returns the messages with a field of their values as their values."""
    return _change_values(
        messages,
        lambda value: bytes(msgspec.json.decode(value, type=dict[str, msgspec.Raw])[name]),
    )


def _change_values(
    messages: Sequence[KeyAndValue], change: Callable[[bytes], bytes]
) -> list[KeyAndValue]:
    """Returns the messages with changed values, without those that can't be changed."""
    changed = []
    for message in messages:
        try:
            value = None if message.value is None else change(message.value)
        except (RefusedValueError, msgspec.MsgspecError, KeyError):
            continue
        changed.append(KeyAndValue(message.key, value))
    return changed
