"""What a topic's messages are: told by a sample of them, or by who asks.

What can't be told is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.infer.changes import ENVELOPES, events_of, marks_of, of_changes
from windrow.ingest.infer.documents import document
from windrow.ingest.infer.hints import Hints, SampledFormat
from windrow.ingest.infer.lines import of_lines
from windrow.ingest.infer.proposal import (
    KEEP_KEY,
    KeyAndValue,
    Proposal,
    Setting,
    counted,
    of_documents,
    of_one_column,
)
from windrow.ingest.infer.registered import Framed, behind_frames, framed, of_registry
from windrow.ingest.ports.schemas import SchemaRegistry

_UNTOLD = (
    "Nothing was written. Say what they are: --format csv --columns NAME,NAME, --format string or"
    " --format raw."
)


def propose(
    topic: str, messages: pa.Table, stated: Hints, registry: SchemaRegistry | None
) -> Proposal:
    """How the messages are to be read.

    Raises:
        SpecError: the sample doesn't tell, or is none of what it is said to be; says what to pass.
        WindrowError: as the registry.
    """
    seen = framed(messages, "value")
    if stated.format is None and registry is not None and (seen.most or not messages.num_rows):
        return _refuse_useless(stated, of_registry(registry, topic, messages))
    plain = _messages(messages, stated, seen)
    _refuse_empty(topic, messages.num_rows, plain)
    format_ = stated.format or _recognised(topic, plain, seen)
    return _refuse_useless(stated, _by_format(topic, format_, plain, stated))


def _messages(messages: pa.Table, stated: Hints, seen: Framed) -> list[KeyAndValue]:
    """Those that are read; what names its schema without what names it, where that is
    what they are, or may be.
    """
    behind = stated.format == "json-schema-confluent" or (stated.format is None and seen.most)
    values = behind_frames(messages) if behind else messages.column("value").to_pylist()
    return [
        KeyAndValue(key, value)
        for key, value in zip(messages.column("key").to_pylist(), values, strict=True)
    ]


def _recognised(topic: str, messages: Sequence[KeyAndValue], seen: Framed) -> SampledFormat:
    valued = [message for message in messages if message.value is not None]
    documents = sum(document(message.value or b"") is not None for message in valued)
    if seen.most:
        if documents == seen.named:
            return "json-schema-confluent"
        what = (
            f"{seen.named:,} of {counted(len(valued))} of topic {topic} begin with the id of a"
            f" schema in a registry, most with {seen.id}"
        )
        do = (
            "Nothing was written. Say which registry has it: --registry https://HOST:PORT, or"
            " --cluster NAME, whose windrow.yaml names one."
        )
        raise SpecError(what, "spec", f"{do} If they are none of Confluent's: --format raw.")
    if 2 * documents <= len(valued):
        what = (
            f"{documents:,} of {counted(len(valued))} of topic {topic} are JSON objects, and what"
            " the others are can't be told"
        )
        raise SpecError(
            what, "spec", f"{_UNTOLD} Plain Avro and Protobuf need their schema: docs/formats.md."
        )
    for format_ in ENVELOPES:
        events = len(events_of(format_, messages))
        if events and events + marks_of(format_, messages) == documents:
            return _named(format_)
        if events:
            what = (
                f"{events:,} of {counted(documents)} of topic {topic} look like"
                f" {ENVELOPES[format_].tool}'s events, and the others don't"
            )
            raise SpecError(
                what,
                "spec",
                f"Nothing was written. Say what they are: --format {format_}, or --format json.",
            )
    return "json"


def _named(format_: str) -> SampledFormat:
    return next(name for name in get_args(SampledFormat) if name == format_)


def _by_format(
    topic: str, format_: SampledFormat, messages: Sequence[KeyAndValue], stated: Hints
) -> Proposal:
    valued = sum(message.value is not None for message in messages)
    if format_ == "csv":
        if not stated.columns:
            raise SpecError(
                "The names of CSV's fields stand in no message",
                "spec",
                "Nothing was written. Give them in order: --columns id,name.",
            )
        return _beside_keys(messages, of_lines(messages, stated.columns))
    if format_ in {"string", "raw"}:
        return _beside_keys(messages, of_one_column(format_, valued))
    if format_ in ENVELOPES:
        events = events_of(format_, messages)
        if not events:
            raise _none(topic, valued, f"{ENVELOPES[format_].tool}'s events")
        return of_changes(format_, topic, events, stated.table)
    if not any(
        message.value is not None and document(message.value) is not None for message in messages
    ):
        raise _none(topic, valued, "JSON objects")
    return of_documents(messages, Setting("format", format_))


def _beside_keys(messages: Sequence[KeyAndValue], proposal: Proposal) -> Proposal:
    """The same; where there are keys, it says that they are left out."""
    return (
        replace(proposal, hints=(*proposal.hints, KEEP_KEY))
        if any(message.key for message in messages)
        else proposal
    )


def _none(topic: str, valued: int, what: str) -> SpecError:
    return SpecError(f"None of {counted(valued)} of topic {topic} are {what}", "spec", _UNTOLD)


def _refuse_empty(topic: str, sampled: int, messages: Sequence[KeyAndValue]) -> None:
    if any(message.value is not None for message in messages):
        return
    what = (
        f"No message of topic {topic} can be sampled"
        if not sampled
        else f"{counted(sampled)} of topic {topic} were sampled, none with a value"
    )
    do = (
        "Nothing was written. Produce one first; or, if a schema registry has the topic's schema,"
        " name it: --registry https://HOST:PORT; or begin with a template: windrow init --topic"
        " TOPIC."
    )
    raise SpecError(what, "spec", do)


def _refuse_useless(stated: Hints, proposal: Proposal) -> Proposal:
    """That nothing which was said went unused."""
    formats = {setting.name: setting.value for setting in proposal.decode}
    if stated.columns and formats.get("format") != "csv":
        raise SpecError(
            "--columns names the fields of CSV",
            "spec",
            "Nothing was written. Add --format csv, or leave it out.",
        )
    if stated.table is not None and formats.get("format") not in ENVELOPES:
        raise SpecError(
            "--table chooses among the tables of change data",
            "spec",
            "Nothing was written. Leave it out.",
        )
    return proposal
