"""Sections of several kinds.

The options of `decode` depend on its `format`, those of `sink` on its `kind`. A table
of kinds has the module of each, which is loaded when a spec names the kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from windrow.ingest.settings.document import suggest
from windrow.ingest.settings.values import Section, sentence


def kind_at(reference: str) -> Any:
    """Loads `package.module:NAME`."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def section_at(reference: str) -> type[Section]:
    """Loads a model, or that of a kind, by a reference to either."""
    found = kind_at(reference)
    section: type[Section] = found if isinstance(found, type) else found.section
    return section


@dataclass(frozen=True, eq=False)
class OfItsKind:
    """Annotation of a section of several kinds, for pydantic.

    `option`: the setting that names the kind; `default`: the kind of a section that
    names none; `kinds`: the reference to each kind's model, or of a kind that has it as its
    `section`, by name (`package.module:NAME`).
    """

    option: str
    default: str
    kinds: Mapping[str, str]

    def sections(self) -> dict[str, type[Section]]:
        """Loads the models of all kinds, by their names."""
        return {name: section_at(kind) for name, kind in self.kinds.items()}

    def model(self, written: object) -> type[Section]:
        """Returns the model of a section as it is written.

        It is that of the default kind if the section names none, or an unknown one.
        """
        name = written.get(self.option) if isinstance(written, Mapping) else None
        known = name if isinstance(name, str) and name in self.kinds else self.default
        return section_at(self.kinds[known])

    @classmethod
    def of(cls, field: FieldInfo) -> OfItsKind | None:
        """Returns the annotation of a model's field; None if the field has no kinds."""
        return next((each for each in field.metadata if isinstance(each, cls)), None)

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validates by the kind's own model."""
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Makes the JSON schema: the names of all kinds, and the options of each."""
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
            what = f"there is no such {self.option} here{suggest(str(name), list(self.kinds))}"
            wrong = InitErrorDetails(type=sentence(what), loc=(self.option,), input=None)
            raise ValidationError.from_exception_data("spec", [wrong], hide_input=True)
        return self.model(value).model_validate(value)


@dataclass(frozen=True, eq=False)
class OfItsOption:
    """Annotation of a section whose kind is the name of an option that it has.

    `kinds`: the reference to each kind's model, by that option.
    """

    kinds: Mapping[str, str]

    def sections(self) -> dict[str, type[Section]]:
        """Loads the models of all kinds, by their options."""
        return {name: section_at(kind) for name, kind in self.kinds.items()}

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validates by the kind's own model."""
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Makes the JSON schema: one of the options, and those that go with each."""
        return {
            "type": "object",
            "properties": {},
            "anyOf": [{"required": [name]} for name in self.kinds],
            "allOf": [
                {
                    "if": {"required": [name]},
                    "then": handler(section.__pydantic_core_schema__),
                }
                for name, section in self.sections().items()
            ],
        }

    def _checked(self, value: object) -> Section:
        if isinstance(value, Section):
            return value
        if not isinstance(value, Mapping):
            raise sentence("must be a mapping")
        named = [name for name in self.kinds if name in value]
        if len(named) != 1:
            said = f", and says {' and '.join(named)}" if named else ""
            raise sentence(f"must say one of {', '.join(self.kinds)}{said}")
        return section_at(self.kinds[named[0]]).model_validate(value)
