"""The table of kinds: a spec's `sink.kind`, and what makes such a sink. A new kind is one folder and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ingest.config.values import refuse
from ingest.sinks.kind import SinkKind, SinkSection

KINDS = {
    "delta": "ingest.sinks.delta.kind:Delta",
}
"""The class of each kind, by the text of `sink.kind`."""

DEFAULT_KIND = "delta"
"""What a spec means that names none."""


def sink_kind(name: str) -> SinkKind[Any]:
    """Load a kind and nothing of the others. `name` is one of `KINDS`."""
    module, _, attribute = KINDS[name].partition(":")
    kind: SinkKind[Any] = getattr(import_module(module), attribute)()
    return kind


def section_model(written: object) -> type[SinkSection]:
    """The model of a `sink` section as it was written; the default kind's where that names no kind that there is."""
    name = written.get("kind", DEFAULT_KIND) if isinstance(written, Mapping) else DEFAULT_KIND
    return sink_kind(name if isinstance(name, str) and name in KINDS else DEFAULT_KIND).section


def sections() -> dict[str, type[SinkSection]]:
    """The model of each kind's section: for who describes them all."""
    return {name: sink_kind(name).section for name in KINDS}


class ByKind:
    """How pydantic reads a `sink` section: its kind says which model holds its options."""

    @staticmethod
    def read(written: object) -> SinkSection:
        """The section as the model of its kind.

        Raises:
            ValidationError: there is no such kind, or the kind doesn't take what was written.
        """
        if isinstance(written, SinkSection):
            return written
        name = written.get("kind", DEFAULT_KIND) if isinstance(written, Mapping) else DEFAULT_KIND
        if not isinstance(name, str) or name not in KINDS:
            refuse([(("kind",), f"there is no such kind of sink; known are {', '.join(KINDS)}")])
        return section_model(written).model_validate(written)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read by `read`, whatever the annotated type."""
        del source, handler
        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Each kind's own schema, chosen by `kind`, so that an editor tells a mistake at its place."""
        del schema
        named = [_chosen(name, handler(model.__pydantic_core_schema__)) for name, model in sections().items()]
        return {"type": "object", "properties": {"kind": {"enum": list(KINDS), "default": DEFAULT_KIND}}, "allOf": named}


def _chosen(name: str, options: JsonSchemaValue) -> JsonSchemaValue:
    of_kind: dict[str, Any] = {"properties": {"kind": {"const": name}}}
    return {"if": of_kind if name == DEFAULT_KIND else {**of_kind, "required": ["kind"]}, "then": options}
