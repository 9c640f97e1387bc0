"""Distributions that a test installs: modules in a folder, with entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest


class Site:
    """A folder of `sys.path` into which distributions are installed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        folder.mkdir()

    def install(self, name: str, modules: Mapping[str, str], **groups: Mapping[str, str]) -> None:
        """Installs a distribution of version 1.0.

        Args:
            name: the distribution's name.
            modules: the texts of its modules, by name.
            groups: the entry-point groups below `windrow.`, each with its entry points by name.
        """
        info = self._folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = [
            line
            for group, entries in groups.items()
            for line in (f"[windrow.{group}]", *(f"{n} = {v}" for n, v in entries.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join([*points, ""]))
        for module, text in modules.items():
            (self._folder / f"{module}.py").write_text(text)
        self._monkeypatch.syspath_prepend(self._folder)
