"""Kinds that other distributions bring, by entry points."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windrow.ingest.errors import mistakes
from windrow.ingest.settings.values import Section, sentence

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
"""What Dagster takes for a kind of asset."""

LOADED: dict[str, str] = {}
"""The distributions of the plugins that this process has loaded, with their versions."""


@dataclass(frozen=True, eq=False)
class Plugins:
    """A group of entry points beside one of windrow's tables of kinds.

    It is asked only for what windrow's own table lacks: reading the entry points of all
    distributions takes as long as a small command.

    `group`: the entry points' group; `own`: windrow's names, which no plugin can have; `section`:
    what the model of each kind is a subclass of; `methods`: those of it that a kind must have of
    its own.
    """

    group: str
    own: Collection[str]
    section: type[Section]
    methods: Collection[str]

    def names(self) -> list[str]:
        """Returns the names of all of them, loaded or not."""
        return sorted({entry.name for entry in self._entries()}.difference(self.own))

    def kind(self, name: str) -> type[Section] | None:
        """Loads the kind of a name; None if no distribution has it.

        Raises:
            PydanticCustomError: it can't be loaded, isn't a kind, or several distributions have
                one; says which entry point, of which distribution.
        """
        entries = [] if name in self.own else [*self._entries().select(name=name)]
        if not entries:
            return None
        whose = ", ".join(sorted(_whose(entry) for entry in entries))
        what = f"the plugin {name} (entry point of {self.group}, from {whose})"
        if len(entries) > 1:
            raise sentence(f"{what} is there more than once: uninstall all but one of them")
        if not _NAME.fullmatch(name):
            raise sentence(f"{what} must have a name of at most 60 letters, digits, _, . and -")
        try:
            kind = entries[0].load()
        except mistakes() as error:  # whatever its module does
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise sentence(
                f"{what} can't be loaded ({why}): install what it needs, or another version of it"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, self.section)) or any(
            getattr(kind, method) is getattr(self.section, method) for method in self.methods
        ):
            wanted = f"{self.section.__module__}.{self.section.__name__}"
            also = " and ".join(self.methods)
            raise sentence(f"{what} is no kind: it must be a {wanted}, with {also}")
        if entries[0].dist is not None:
            LOADED[entries[0].dist.name] = entries[0].dist.version
        return kind

    def _entries(self) -> EntryPoints:
        from importlib.metadata import entry_points  # takes long to load

        return entry_points(group=self.group)


def _whose(entry: Any) -> str:
    return "no distribution" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
