"""Sections of several kinds: windrow's own kinds, and those of other distributions.

The options of `decode` depend on its `format`, those of `sink` on its `kind`. A table of
kinds has the module of each kind, which is imported when a spec names the kind. A kind that
isn't in the table may be a plugin. A plugin can't replace a kind of the table.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from windrow.ingest.errors import foreign_exceptions
from windrow.ingest.settings.document import nearest, suggest
from windrow.ingest.settings.values import Section, sentence

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
"""Matches the names that Dagster allows for a kind of asset."""

LOADED: dict[str, str] = {}
"""The distributions of the plugins that this process has loaded, with their versions."""


@dataclass(frozen=True, eq=False)
class Plugins:
    """A group of entry points that adds to one of windrow's tables of kinds.

    It is used only for names that aren't in windrow's table, because reading the entry
    points of all distributions takes as long as a small command.

    Attributes:
        group: the group of the entry points.
        builtin_names: windrow's own names, which no plugin can have.
        section: the base class of the model of each kind.
        methods: the methods of `section` that a kind must override.
    """

    group: str
    builtin_names: Collection[str]
    section: type[Section]
    methods: Collection[str]

    def names(self) -> list[str]:
        """Returns the names of all plugins, loaded or not."""
        return sorted({entry.name for entry in self._entries()}.difference(self.builtin_names))

    def kind(self, name: str) -> type[Section] | None:
        """Loads the kind with a name; None if no distribution has it.

        Raises:
            PydanticCustomError: it can't be loaded, isn't a kind, or several distributions
                have it. The message names the entry point and its distribution.
        """
        entries = [] if name in self.builtin_names else [*self._entries().select(name=name)]
        if not entries:
            return None
        whose = ", ".join(sorted(_whose(entry) for entry in entries))
        plugin = f"the plugin {name} (entry point of {self.group}, from {whose})"
        if len(entries) > 1:
            raise sentence(f"{plugin} is there more than once: uninstall all but one of them")
        if not _NAME.fullmatch(name):
            raise sentence(f"{plugin} must have a name of at most 60 letters, digits, _, . and -")
        try:
            kind = entries[0].load()
        except foreign_exceptions() as error:  # the plugin's module may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise sentence(
                f"{plugin} can't be loaded ({reason}): install what it needs, or another version"
                " of it"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, self.section)) or any(
            getattr(kind, method) is getattr(self.section, method) for method in self.methods
        ):
            expected_class = f"{self.section.__module__}.{self.section.__name__}"
            also = " and ".join(self.methods)
            raise sentence(f"{plugin} is no kind: it must be a {expected_class}, with {also}")
        if entries[0].dist is not None:
            LOADED[entries[0].dist.name] = entries[0].dist.version
        return kind

    def _entries(self) -> EntryPoints:
        return _read_entry_points(self.group, tuple(sys.path))


@cache
def _read_entry_points(group: str, _path: tuple[str, ...]) -> EntryPoints:
    """Reads a group's entry points of all distributions, once for each path of imports."""
    from importlib.metadata import entry_points  # the import takes long

    return entry_points(group=group)


def _whose(entry: Any) -> str:
    return "no distribution" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def section_at(reference: str) -> type[Any]:
    """Loads the model of a kind by `package.module:NAME`."""
    module, _, name = reference.partition(":")
    section: type[Section] = getattr(importlib.import_module(module), name)
    return section


def validated_at(reference: str) -> PlainValidator:
    """Makes the validator of a section of a layer above, which is imported when a spec has it.

    Args:
        reference: the section's type, as `section_at` takes it.
    """

    def validate(written: object) -> Any:
        return TypeAdapter(section_at(reference)).validate_python(written)

    return PlainValidator(validate)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Kinds:
    """The base class of annotations for sections of several kinds.

    Attributes:
        kinds: the reference to each kind's model (`package.module:NAME`), by the kind's
            name.
        plugins: the kinds of other distributions; None: there can't be any.
    """

    kinds: Mapping[str, str]
    plugins: Plugins | None = None

    def sections(self) -> dict[str, type[Section]]:
        """Loads the models of all kinds of the table, by their names."""
        return {name: section_at(kind) for name, kind in self.kinds.items()}

    def _names(self) -> list[str]:
        """Returns the names of all kinds, loaded or not."""
        return [*self.kinds, *(self.plugins.names() if self.plugins else ())]

    def _section(self, name: object) -> type[Section] | None:
        """Loads the model of a kind; None if there is no such kind.

        Raises:
            PydanticCustomError: it is a plugin's kind, which can't be used.
        """
        if not isinstance(name, str):
            return None
        if name in self.kinds:
            return section_at(self.kinds[name])
        return None if self.plugins is None else self.plugins.kind(name)

    def _schemas(self, handler: GetJsonSchemaHandler) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the name and the JSON schema of each kind, without plugins that have no schema."""
        for name in self._names():
            try:
                section = self._section(name)
                assert section is not None, "it is among the names"
                schema = handler(section.__pydantic_core_schema__)
            except Exception:  # a plugin's error must not affect specs that don't use the plugin
                if name in self.kinds:
                    raise
            else:
                yield name, schema

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validates by the kind's own model."""
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: object) -> Section:
        if isinstance(value, Section):
            return value
        if not isinstance(value, Mapping):
            raise sentence("must be a mapping")
        return self._model_of(value).model_validate(value)

    def _model_of(self, written: Mapping[Any, Any]) -> type[Section]:
        """Returns the model of a section as it is written.

        Raises:
            PydanticCustomError: there is no such kind, or it can't be used.
            ValidationError: the same, with the path of the option.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class OfItsKind(_Kinds):
    """Annotation of a section of several kinds, for pydantic.

    Attributes:
        option: the setting that names the kind.
        default: the kind of a section that names none.
    """

    option: str
    default: str

    def model(self, written: object) -> type[Section]:
        """Returns the model of a section as it is written.

        If the section names no kind, or one that can't be loaded, it is the model of the
        default kind.
        """
        name = written.get(self.option) if isinstance(written, Mapping) else None
        with suppress(PydanticCustomError):
            if (section := self._section(name)) is not None:
                return section
        return section_at(self.kinds[self.default])

    @classmethod
    def of(cls, field: FieldInfo) -> OfItsKind | None:
        """Returns the annotation of a model's field; None if the field has no kinds."""
        return next(
            (annotation for annotation in field.metadata if isinstance(annotation, cls)), None
        )

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

    def _model_of(self, written: Mapping[Any, Any]) -> type[Section]:
        name = written.get(self.option, self.default)
        try:
            if (section := self._section(name)) is None:
                near = suggest(str(name), self._names())
                raise sentence(f"there is no such {self.option} here{near}")
        except PydanticCustomError as error:
            error_details = InitErrorDetails(type=error, loc=(self.option,), input=None)
            raise ValidationError.from_exception_data(
                "spec", [error_details], hide_input=True
            ) from None
        return section


class OfItsOption(_Kinds):
    """Annotation of a section whose kind is the name of an option that it has."""

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

    def _model_of(self, written: Mapping[Any, Any]) -> type[Section]:
        known_names = list(self.kinds)
        named = [name for name in known_names if name in written]
        if not named:
            known_names = self._names()
            named = [name for name in known_names if name in written]
        if len(named) != 1:
            conflict = f", and says {' and '.join(named)}" if named else ""
            near = filter(None, (nearest(str(key), known_names) for key in written))
            meant = next((f"; did you mean {name}?" for name in near), "")
            raise sentence(f"must say one of {', '.join(known_names)}{conflict or meant}")
        section = self._section(named[0])
        assert section is not None, "its name was among those that there are"
        return section
