"""A new pipeline's spec as a text, with a word on each setting. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windrow.ingest.infer.proposal import Proposal
from windrow.ingest.model.label import instant

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

SPEC, SCHEMA = "defs.yaml", "schema.py"
"""The files' names."""

_UNQUOTED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "none", "y", "n"}
_WITH_UNKNOWN = {"json", "json-schema-confluent"}


@dataclass(frozen=True)
class Address:
    """How a cluster is reached: by its servers, or by the name that a windrow.yaml has for it.

    `registry`: the URL of its registry.
    """

    bootstrap: str = DEFAULT_BOOTSTRAP
    cluster: str | None = None
    registry: str | None = None

    @property
    def source(self) -> dict[str, Any]:
        """The settings of a spec's source that say so."""
        reached = (
            {"bootstrap_servers": self.bootstrap}
            if self.cluster is None
            else {"cluster": self.cluster}
        )
        return reached if self.registry is None else {**reached, "registry": {"url": self.registry}}


def class_name(name: str) -> str:
    """What the schema's class is called in the pipeline of an id."""
    found = "".join(part[:1].upper() + part[1:] for part in re.findall(r"[A-Za-z0-9]+", name))
    return found if found[:1].isalpha() and found not in {"None", "True", "False"} else "Row"


def spec_text(
    name: str,
    topic: str,
    address: Address,
    grid: str,
    start: datetime | None,
    delay: str,
    proposal: Proposal,
    *,
    tombstones: int = 0,
) -> str:
    """The spec's file, with a word on each setting."""
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
                    "# A pipeline of windrow: a topic becomes a table. docs/settings.md lists every"
                    " setting."
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
            *_source(address, asks_registry=proposal.asks_registry),
            (f"    topic: {json.dumps(topic)}", ""),
            ("    # client: {}", "librdkafka's properties: security.protocol, sasl.mechanism ..."),
            ("  window:", ""),
            *window,
            ("  decode:", ""),
            *_decode(class_name(name), proposal, tombstones),
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


def _source(address: Address, *, asks_registry: bool) -> Iterator[tuple[str, str]]:
    if address.cluster is not None:
        yield f"    cluster: {json.dumps(address.cluster)}", "as windrow.yaml has it"
        return
    yield (
        f"    bootstrap_servers: {json.dumps(address.bootstrap)}",
        'or, from the environment: "{{ env.NAME }}"',
    )
    if asks_registry:
        yield "    registry:", "has the schemas that messages name"
        yield f"      url: {json.dumps(address.registry)}", "besides username, password, ca ..."


def _decode(class_name: str, proposal: Proposal, tombstones: int) -> Iterator[tuple[str, str]]:
    """The settings of the section; what a format does without a value, where that isn't
    its own business.
    """
    (first, *others), format_ = proposal.decode, proposal.format
    yield f"    format: {_flow(first.value)}", first.comment
    yield f"    schema: {SCHEMA}:{class_name}", "columns, types and rules"
    for setting in others:
        yield f"    {setting.name}: {_flow(setting.value)}", setting.comment
    if not proposal.change_data:
        word = (
            "a message without a value;"
            f" {f'{tombstones:,} of the sampled ones: only counted' if tombstones else 'or drop'}"
        )
        yield f"    on_null: {'drop' if tombstones else 'dead'}", word
    if format_ in _WITH_UNKNOWN:
        yield "    unknown: ignore", "fields that the schema doesn't name; or dead"
    yield from ((f"    # {hint}", "") for hint in proposal.hints)


def _keyed(primary_key: Sequence[str]) -> Iterator[tuple[str, str]]:
    if primary_key:
        yield "    mode: upsert", "a row takes the place of the one with its key; or append"
        yield f"    primary_key: {_flow(list(primary_key))}", "goes with mode"


def _flow(value: Any) -> str:
    """A value in YAML, on one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_flow(name)}: {_flow(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str) and _UNQUOTED.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _commented(lines: Iterable[tuple[str, str]]) -> str:
    """Settings with their comments in one column, as far as they fit."""
    return "".join(
        f"{line:40}  # {comment}".rstrip() + "\n" if comment else f"{line}\n"
        for line, comment in lines
    )
