"""Sections of several kinds.

The options of `decode` depend on its `format`, those of `sink` on its `kind`. A table
of kinds has the module of each, which is loaded when a spec names the kind. Kinds that the table
lacks may be plugins; a name of the table's own is never looked for among them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from windrow.ingest.settings.document import suggest
from windrow.ingest.settings.plugins import Plugins
from windrow.ingest.settings.values import Section, sentence


def section_at(reference: str) -> type[Any]:
    """Loads the model of a kind by `package.module:NAME`."""
    module, _, name = reference.partition(":")
    section: type[Section] = getattr(importlib.import_module(module), name)
    return section


class _Kinds:
    """What sections of several kinds share: a table of kinds, and plugins behind it."""

    kinds: Mapping[str, str]
    plugins: Plugins | None

    def sections(self) -> dict[str, type[Section]]:
        """Loads the models of all kinds of the table, by their names."""
        return {name: section_at(kind) for name, kind in self.kinds.items()}

    def _names(self) -> list[str]:
        """Returns the names of all kinds, loaded or not."""
        return [*self.kinds, *(self.plugins.names() if self.plugins else ())]

    def _section(self, name: str) -> type[Section] | None:
        """Loads the model of a kind; None if there is no such kind.

        Raises:
            PydanticCustomError: it is a plugin's, which can't be used.
        """
        if name in self.kinds:
            return section_at(self.kinds[name])
        return None if self.plugins is None else self.plugins.kind(name)

    def _schemas(self, handler: GetJsonSchemaHandler) -> Iterator[tuple[str, dict[str, Any]]]:
        """Makes the JSON schema of each kind; a plugin that has none is left out."""
        for name, section in self.sections().items():
            yield name, handler(section.__pydantic_core_schema__)
        for name in self.plugins.names() if self.plugins else ():
            schema = None
            with suppress(Exception):  # whatever it does, specs without it have a schema
                plugin = self._section(name)
                schema = None if plugin is None else handler(plugin.__pydantic_core_schema__)
            if schema is not None:
                yield name, schema


@dataclass(frozen=True, eq=False)
class OfItsKind(_Kinds):
    """Annotation of a section of several kinds, for pydantic.

    `option`: the setting that names the kind; `default`: the kind of a section that
    names none; `kinds`: the reference to each kind's model, or of a kind that has it as its
    `section`, by name (`package.module:NAME`); `plugins`: those of other distributions.
    """

    option: str
    default: str
    kinds: Mapping[str, str]
    plugins: Plugins | None = None

    def model(self, written: object) -> type[Section]:
        """Returns the model of a section as it is written.

        It is that of the default kind if the section names none, or one that can't be had.
        """
        name = written.get(self.option) if isinstance(written, Mapping) else None
        with suppress(PydanticCustomError):
            found = self._section(name) if isinstance(name, str) else None
            if found is not None:
                return found
        return section_at(self.kinds[self.default])

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
        for name, section in self._schemas(handler):
            named = {"properties": {self.option: {"const": name}}}
            only = {} if name == self.default else {"required": [self.option]}
            cases.append({"if": {**named, **only}, "then": section})
        return {
            "type": "object",
            "properties": {self.option: {"enum": self._names()}},
            "allOf": cases,
        }

    def _checked(self, value: object) -> Section:
        if isinstance(value, Section):
            return value
        if not isinstance(value, Mapping):
            raise sentence("must be a mapping")
        name = value.get(self.option, self.default)
        try:
            section = self._section(name) if isinstance(name, str) else None
            if section is None:
                near = suggest(str(name), self._names())
                raise sentence(f"there is no such {self.option} here{near}")
        except PydanticCustomError as error:
            wrong = InitErrorDetails(type=error, loc=(self.option,), input=None)
            raise ValidationError.from_exception_data("spec", [wrong], hide_input=True) from None
        return section.model_validate(value)


@dataclass(frozen=True, eq=False)
class OfItsOption(_Kinds):
    """Annotation of a section whose kind is the name of an option that it has.

    `kinds`: the reference to each kind's model, by that option; `plugins`: those of other
    distributions.
    """

    kinds: Mapping[str, str]
    plugins: Plugins | None = None

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
            "anyOf": [{"required": [name]} for name in self._names()],
            "allOf": [
                {"if": {"required": [name]}, "then": section}
                for name, section in self._schemas(handler)
            ],
        }

    def _checked(self, value: object) -> Section:
        if isinstance(value, Section):
            return value
        if not isinstance(value, Mapping):
            raise sentence("must be a mapping")
        known = list(self.kinds)
        named = [name for name in known if name in value]
        if not named:
            known = self._names()
            named = [name for name in known if name in value]
        if len(named) != 1:
            said = f", and says {' and '.join(named)}" if named else ""
            raise sentence(f"must say one of {', '.join(known)}{said}")
        section = self._section(named[0])
        assert section is not None, "its name was among those that there are"
        return section.model_validate(value)
