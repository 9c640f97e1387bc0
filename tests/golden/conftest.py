"""The comparison with golden files; `__main__.py` has the rules for their changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
WRITING = pytest.StashKey[bool]()
"""Whether golden files are written instead of compared."""

Golden = Callable[[str, object], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a form with its file: a text as it is, any other value as indented JSON."""

    def compare(name: str, form: object) -> None:
        text = form if isinstance(form, str) else as_json(form)
        file = FOLDER / name
        if request.config.stash.get(WRITING, False):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), (
            f"tests/golden/{name} has another form: `python -m tests.golden` writes it anew, and"
            " tests/golden/__main__.py says when that may be done"
        )

    return compare


def as_json(form: object) -> str:
    return json.dumps(form, indent=1, ensure_ascii=False) + "\n"
