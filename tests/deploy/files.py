"""The files of deploy/ as values: the Dockerfile's lines, and compose.yaml with its variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
IMAGE = "windrow:"
"""The beginning of the names of windrow's own images."""

ASKED = {"KAFKA_BOOTSTRAP": "kafka:9093", "KAFKA_USER": "reader"}
"""Variables that users must set."""

_VARIABLE = re.compile(r"\$\{(\w+)(?::\?[^}]+)?\}")


class Line(NamedTuple):
    """A line of a Dockerfile.

    Attributes:
        word: the instruction.
        value: its argument.
    """

    word: str
    value: str


def dockerfile() -> list[Line]:
    """Returns the instructions of the Dockerfile, in order, without comments."""
    parser = DockerfileParser(fileobj=BytesIO((DEPLOY / "Dockerfile").read_bytes()))
    return [
        Line(instruction["instruction"], instruction["value"])
        for instruction in parser.structure
        if instruction["instruction"] != "COMMENT"
    ]


def copies() -> list[tuple[str, str]]:
    """Returns the files that the image copies from the project, each with its target."""
    lines = [
        shlex.split(line.value)
        for line in dockerfile()
        if line.word == "COPY" and "--from=" not in line.value
    ]
    return [(source, target) for *sources, target in lines for source in sources]


def compose(text: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Returns a compose file with its variables filled in.

    A variable without a value is an error, and so is any other form than `${NAME:?why}`.
    """
    filled = _VARIABLE.sub(lambda match: variables[match[1]], text)
    assert "$" not in filled
    loaded = yaml.safe_load(filled)
    assert isinstance(loaded, dict)
    return loaded


def services(variables: Mapping[str, str] = ASKED) -> dict[str, dict[str, Any]]:
    """Returns the services of compose.yaml, by name."""
    return dict(compose(COMPOSE.read_text(encoding="utf-8"), variables)["services"])


def ours() -> dict[str, dict[str, Any]]:
    """Returns the services that use windrow's own image."""
    return {
        name: service for name, service in services().items() if service["image"].startswith(IMAGE)
    }
