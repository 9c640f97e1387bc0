"""Recognises the format of a topic's sampled messages, and proposes their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.infer.change_events import ENVELOPES, events_of, marks_of, of_changes
from windrow.ingest.infer.csv_lines import of_lines
from windrow.ingest.infer.proposal import (
    KeyAndValue,
    Proposal,
    counted,
    documents_of,
    of_documents,
    of_one_column,
    without_key,
)
from windrow.ingest.infer.registry_schemas import Framed, framed, of_registry
from windrow.ingest.infer.request import PipelineRequest, SampledFormat
from windrow.ingest.ports.schema_registry import SchemaRegistry

_DO = (
    "Nothing was written. Say what they are: --format csv --columns NAME,NAME, --format string or"
    " --format raw."
)


def propose(
    asked: PipelineRequest, messages: pa.Table, registry: SchemaRegistry | None
) -> Proposal:
    """Proposes how to read a topic's messages.

    Raises:
        SpecError: the sample doesn't reveal it, or contradicts a hint; the error says
            which options to pass.
        WindrowError: raised by the registry.
    """
    topic, seen = asked.topic, framed(messages, "value")
    if asked.format is None and registry is not None and (seen.most or not messages.num_rows):
        return _refuse_unused(asked, of_registry(registry, topic, messages))
    plain = _messages(messages, asked, seen)
    _refuse_empty(topic, messages.num_rows, plain)
    format_ = asked.format or _recognised(topic, plain, seen)
    return _refuse_unused(asked, _by_format(topic, format_, plain, asked))


def _messages(messages: pa.Table, asked: PipelineRequest, seen: Framed) -> list[KeyAndValue]:
    """The messages as Python values, without Confluent's frames."""
    behind = asked.format == "json-schema-confluent" or (asked.format is None and seen.most)
    values = seen.values if behind else messages.column("value").to_pylist()
    return [
        KeyAndValue(key, value)
        for key, value in zip(messages.column("key").to_pylist(), values, strict=True)
    ]


def _recognised(topic: str, messages: Sequence[KeyAndValue], seen: Framed) -> SampledFormat:
    valued = [message for message in messages if message.value is not None]
    documents = len(documents_of(messages))
    if seen.most:
        if documents == seen.named:
            return "json-schema-confluent"
        what = (
            f"{seen.named:,} of {counted(len(valued))} of topic {topic} begin with the id of a"
            f" schema in a registry, most with {seen.id}"
        )
        do = (
            "Nothing was written. Name the registry that has it: --registry https://HOST:PORT, or"
            " --cluster NAME, whose windrow.yaml names one."
        )
        raise SpecError(what, "spec", f"{do} If it is no id of a schema: --format raw.")
    if 2 * documents <= len(valued):
        what = (
            f"{documents:,} of {counted(len(valued))} of topic {topic} are JSON objects, and the"
            " format of the others is unknown"
        )
        raise SpecError(
            what, "spec", f"{_DO} Plain Avro and Protobuf need their schema: docs/formats.md."
        )
    for format_ in ENVELOPES:
        events = len(events_of(format_, messages))
        if events and events + marks_of(format_, messages) == documents:
            return next(name for name in get_args(SampledFormat) if name == format_)
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


def _by_format(
    topic: str, format_: SampledFormat, messages: Sequence[KeyAndValue], asked: PipelineRequest
) -> Proposal:
    valued = sum(message.value is not None for message in messages)
    keyed = any(message.key for message in messages)
    if format_ == "csv":
        if not asked.columns:
            raise SpecError(
                "The messages don't have the names of CSV's fields",
                "spec",
                "Nothing was written. Give them in order: --columns id,name.",
            )
        lines = of_lines(messages, asked.columns)
        return without_key(lines) if keyed else lines
    if format_ in {"string", "raw"}:
        whole = of_one_column(format_, valued)
        return without_key(whole) if keyed else whole
    if format_ in ENVELOPES:
        events = events_of(format_, messages)
        if not events:
            raise _none(topic, valued, f"{ENVELOPES[format_].tool}'s events")
        return of_changes(format_, topic, events, asked.table)
    if not documents_of(messages):
        raise _none(topic, valued, "JSON objects")
    return of_documents(format_, messages)


def _none(topic: str, valued: int, what: str) -> SpecError:
    return SpecError(f"None of {counted(valued)} of topic {topic} are {what}", "spec", _DO)


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


def _refuse_unused(asked: PipelineRequest, proposal: Proposal) -> Proposal:
    """Refuses hints that had no effect."""
    if asked.columns and proposal.format != "csv":
        raise SpecError(
            "--columns names the fields of CSV",
            "spec",
            "Nothing was written. Add --format csv, or leave it out.",
        )
    if asked.table is not None and proposal.format not in ENVELOPES:
        raise SpecError(
            "--table chooses among the tables of change data",
            "spec",
            "Nothing was written. Leave it out.",
        )
    return proposal
