"""Sections whose options depend on one of them: what `decode` may say is the format's
business, and each format is a folder of its own.

A table of kinds says where each of them is described; it is loaded when a spec names it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from windrow.ingest.settings.values import Section, sentence


def kind_at(place: str) -> Any:
    """What stands at `package.module:NAME`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True, eq=False)
class OfItsKind:
    """Pydantic's annotation of a section: one option names the kind, the `section` of
    that kind is the model of all of them.

    `kinds`: by name, where each is described (`package.module:NAME`); `default`: the
    kind of a section that names none.
    """

    option: str
    default: str
    kinds: Mapping[str, str]

    def sections(self) -> dict[str, type[Section]]:
        """The model of each kind, by its name; loads the descriptions of all of them."""
        return {name: kind_at(place).section for name, place in self.kinds.items()}

    def model(self, written: object) -> type[Section]:
        """The model of a section as it is written; that of the default kind where it
        names none, or none that there is.
        """
        name = written.get(self.option) if isinstance(written, Mapping) else None
        section: type[Section] = kind_at(
            self.kinds[name if isinstance(name, str) and name in self.kinds else self.default]
        ).section
        return section

    @classmethod
    def of(cls, field: FieldInfo) -> OfItsKind | None:
        """The annotation of a model's field; None if its options don't depend on a kind."""
        return next((each for each in field.metadata if isinstance(each, cls)), None)

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Checked by the kind's own model."""
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The names of all kinds, and for each what it takes; one that isn't named is
        the default.
        """
        cases = []
        for name, section in self.sections().items():
            named = {"properties": {self.option: {"const": name}}}
            only = {} if name == self.default else {"required": [self.option]}
            cases.append(
                {"if": {**named, **only}, "then": handler(section.__pydantic_core_schema__)}
            )
        return {
            "type": "object",
            "properties": {self.option: {"enum": list(self.kinds)}},
            "allOf": cases,
        }

    def _checked(self, value: object) -> Section:
        if isinstance(value, Section):
            return value
        if not isinstance(value, Mapping):
            raise sentence("must be a mapping")
        name = value.get(self.option, self.default)
        if not isinstance(name, str) or name not in self.kinds:
            known = " or ".join(map(repr, self.kinds))
            wrong = InitErrorDetails(
                type=sentence(f"must be {known}", name), loc=(self.option,), input=None
            )
            raise ValidationError.from_exception_data("spec", [wrong], hide_input=True)
        return self.model(value).model_validate(value)
