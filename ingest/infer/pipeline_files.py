"""Texts of a new pipeline's two files: its spec, and its schema."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

import pyarrow as pa

from windrow.ingest.infer.candidates import LONGEST, Candidate
from windrow.ingest.infer.proposal import Proposal
from windrow.ingest.infer.request import PipelineRequest
from windrow.ingest.model.boundary import instant
from windrow.ingest.schema.dtypes import TIMESTAMP
from windrow.ingest.schema.user_code import import_pandera

SPEC, SCHEMA = "defs.yaml", "schema.py"
"""Names of the two files."""

_UNQUOTED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "none", "y", "n"}
_WITH_UNKNOWN = {"json", "json-schema-confluent"}


def class_name(name: str) -> str:
    """Returns the name of the schema's class for a pipeline's id."""
    joined = "".join(part[:1].upper() + part[1:] for part in re.findall(r"[A-Za-z0-9]+", name))
    return joined if joined[:1].isalpha() and joined not in {"None", "True", "False"} else "Row"


def spec_text(
    name: str,
    request: PipelineRequest,
    grid: str,
    start: datetime | None,
    delay: str,
    proposal: Proposal,
    *,
    nulls: int = 0,
) -> str:
    """Returns the text of the spec, with comments on its settings.

    Args:
        name: the pipeline's id.
        request: the request.
        grid: the grid of windows.
        start: the start of the first window; None for micro-batches.
        delay: the time between a window's end and its closing.
        proposal: the columns, and the settings of `decode`.
        nulls: the number of sampled messages without a value.
    """
    window: list[tuple[str, str]] = [
        (
            f"    grid: {json.dumps(grid)}",
            "in UTC; hourly, daily, a cron expression, or batch: micro-batches",
        )
    ]
    if start is not None:
        window += [
            (f"    start: {instant(start)}", "the first window"),
            (f"    delay: {delay}", "how long after its end a window is closed"),
        ]
    return _commented(
        [
            (
                (
                    "# A pipeline of windrow: a topic becomes a table. `windrow help settings`"
                    " lists every setting."
                ),
                "",
            ),
            (
                "type: windrow.dagster.KafkaTable",
                "for Dagster; the command reads the attributes only",
            ),
            ("attributes:", ""),
            (f"  id: {json.dumps(name)}", "its identity, for ever"),
            ("  source:", ""),
            *_source(request, asks_registry=proposal.asks_registry),
            (f"    topic: {json.dumps(request.topic)}", ""),
            ("    # client: {}", "librdkafka's properties: security.protocol, sasl.mechanism ..."),
            ("  window:", ""),
            *window,
            ("  decode:", ""),
            *_decode(class_name(name), proposal, nulls),
            ("  limits:", ""),
            (
                "    max_dead_ratio: 0.01",
                "more dead letters than this share refuse the window; one is always allowed",
            ),
            ("  sink:", ""),
            (f"    path: ./data/{name}", "relative to this file; or a URL"),
            *_keyed(proposal.primary_key),
        ]
    )


def _source(request: PipelineRequest, *, asks_registry: bool) -> Iterator[tuple[str, str]]:
    if request.cluster is not None:
        yield f"    cluster: {json.dumps(request.cluster)}", "its name in windrow.yaml"
        return
    yield (
        f"    bootstrap_servers: {json.dumps(request.bootstrap)}",
        'or, from the environment: "{{ env.NAME }}"',
    )
    if asks_registry:
        yield "    registry:", "has the schemas that messages name"
        yield f"      url: {json.dumps(request.registry)}", "besides username, password, ca ..."


def _decode(class_name: str, proposal: Proposal, nulls: int) -> Iterator[tuple[str, str]]:
    yield f"    format: {flow(proposal.format)}", ""
    yield f"    schema: {SCHEMA}:{class_name}", "columns, types and rules"
    for name, setting in proposal.decode.items():
        if name != "format":
            yield f"    {name}: {flow(setting.value)}", setting.comment
    if not proposal.change_data:
        word = (
            "a message without a value;"
            f" {f'{nulls:,} of the sampled ones: only counted' if nulls else 'or drop'}"
        )
        yield f"    on_null: {'drop' if nulls else 'dead'}", word
    if proposal.format in _WITH_UNKNOWN:
        yield "    unknown: ignore", "fields that the schema doesn't name; or keep, dead"
    yield from ((f"    # {hint}", "") for hint in proposal.hints)


def _keyed(primary_key: Sequence[str]) -> Iterator[tuple[str, str]]:
    if primary_key:
        yield "    mode: upsert", "a row replaces the one with the same key; or append"
        yield f"    primary_key: {flow(list(primary_key))}", "goes with mode"


def flow(value: Any) -> str:
    """Returns a value as YAML on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{flow(name)}: {flow(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str) and _UNQUOTED.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _commented(lines: Iterable[tuple[str, str]]) -> str:
    """Returns the text of lines, with their comments aligned where possible."""
    return "".join(
        f"{line:40}  # {comment}".rstrip() + "\n" if comment else f"{line}\n"
        for line, comment in lines
    )


_SCALARS: Mapping[pa.DataType, str] = {
    pa.bool_(): "pl.Boolean",
    pa.int8(): "pl.Int8",
    pa.int16(): "pl.Int16",
    pa.int32(): "pl.Int32",
    pa.int64(): "pl.Int64",
    pa.float32(): "pl.Float32",
    pa.float64(): "pl.Float64",
    pa.string(): "pl.String",
    pa.binary(): "pl.Binary",
    pa.date32(): "pl.Date",
    TIMESTAMP: 'pl.Datetime("us", "UTC")',
}


def type_text(kind: pa.DataType) -> str:
    """Returns a type in the notation of a schema, which `schema.dtypes.arrow_type` reads."""
    if pa.types.is_decimal(kind):
        return f"pl.Decimal({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        parts = ", ".join(f"{quote(part.name)}: {type_text(part.type)}" for part in kind)
        return f"pl.Struct({{{parts}}})"
    if pa.types.is_map(kind):
        return f'pl.List(pl.Struct({{"key": pl.String, "value": {type_text(kind.item_type)}}}))'
    return f"pl.List({type_text(kind.value_type)})" if pa.types.is_list(kind) else _SCALARS[kind]


def metadata_text(candidate: Candidate) -> str:
    """Returns the metadata of a schema's field; "" if it needs no metadata."""
    kind, epoch = candidate.guess.type, candidate.guess.epoch
    setting_texts = {
        "map": "True" if kind is not None and pa.types.is_map(kind) else "",
        "epoch": f'"{epoch}"' if epoch else "",
        "default": candidate.default,
    }
    parts = ", ".join(f'"{name}": {text}' for name, text in setting_texts.items() if text)
    return f"{{{parts}}}" if parts else ""


def _python_name(name: str, taken_names: set[str]) -> str:
    """Returns a Python name for a field that isn't in `taken_names`, and adds it to them."""
    plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    base = (
        name
        if plain and not name.startswith("_") and name not in taken_names
        else "field_" + re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")
    )
    candidates = (base if n == 1 else f"{base}_{n}" for n in count(1))
    free = next(candidate for candidate in candidates if candidate not in taken_names)
    taken_names.add(free)
    return free


def reserved_names() -> frozenset[str]:
    """Returns names that no field can have: names of the base class, and of the imports."""
    return frozenset({*dir(import_pandera().DataFrameModel), "Config", "pa", "pl"})


def class_lines(candidates: Iterable[Candidate], reserved: frozenset[str]) -> tuple[str, ...]:
    """Returns the lines of the schema's class, one for each field.

    Args:
        candidates: the fields.
        reserved: the names that no field of the class can have.
    """
    taken_names = set(reserved)
    return tuple(
        (
            f"# left out: {candidate.name!a}: {_comment(candidate.guess.note, candidate.doc)}"
            if candidate.guess.type is None
            else _line(_python_name(candidate.name, taken_names), candidate, candidate.guess.type)
        )
        for candidate in candidates
    )


def _line(name: str, candidate: Candidate, kind: pa.DataType) -> str:
    metadata = metadata_text(candidate)
    options = [
        *([] if name == candidate.name else [f"alias={quote(candidate.name)}"]),
        *(["nullable=True"] if candidate.nullable else []),
        *([f"metadata={metadata}"] if metadata else []),
    ]
    line = f"{name}: {type_text(kind)}" + (f" = pa.Field({', '.join(options)})" if options else "")
    omitted = (f"left out: {path!a}: {reason}" for path, reason in candidate.guess.omitted)
    comment = _comment(*omitted, candidate.guess.note, candidate.doc)
    return f"{line}  # {comment}" if comment else line


def _comment(*parts: str) -> str:
    """Joins texts to one printable line, because a schema's comments may have any characters."""
    text = " ".join(
        "".join(c if c.isprintable() else " " for c in "; ".join(filter(None, parts))).split()
    )
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def quote(name: str) -> str:
    """Quotes a printable name with double quotes, like a formatter of Python code."""
    return json.dumps(name, ensure_ascii=False)


def schema_text(name: str, head: str, lines: Sequence[str]) -> str:
    """Returns the text of the schema.

    Args:
        name: the name of the class.
        head: the first line of the module's docstring.
        lines: the lines of the class.
    """
    return "\n".join(
        [*_head(head), f"class {name}(pa.DataFrameModel):", *(f"    {line}" for line in lines), ""]
    )


EXAMPLE = (
    "id: pl.Int64 = pa.Field(ge=1)  # a rule: messages that break it are dead letters",
    'at: pl.Datetime("us", "UTC")  # RFC 3339 text, such as 2026-01-01T00:00:00Z',
    "amount: pl.Decimal(12, 2) = pa.Field(nullable=True)  # may be null or missing",
)


def _head(head: str) -> Iterator[str]:
    yield from (
        f'"""{head}.',
        "",
        (
            "A message whose values are not exactly of these types is kept as a dead letter, with"
            " the reason (windrow dead show SPEC)."
        ),
        (
            "A column may get rules (pa.Field(ge=0)) and be nullable; money keeps each digit as"
            " pl.Decimal(12, 2). Before the first run"
        ),
        (
            "anything may be changed here; later nullable columns may be added, and sink.evolve"
            ' says what else."""'
        ),
        "",
        "import pandera.polars as pa",
        "import polars as pl",
        "",
        "",
    )
