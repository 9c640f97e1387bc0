"""Temporary refusals of an object store, and the advice that windrow gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.advice.world import Advice, World, retry_step
from tests.cli.conftest import Stage, hour
from tests.s3.server import S3Server
from windrow.ingest.sinks.kit.files import put_if_absent

RUN = f"windrow run SPEC --window {hour(3)}"


@dataclass
class S3World(World):
    """A pipeline on a table of files in a bucket.

    Attributes:
        server: the server of the bucket.
    """

    server: S3Server = field(init=False)

    def types(self, command: str) -> int:
        """Calls a command; after it, the store answers again."""
        code = super().types(command)
        if hasattr(self, "server"):
            self.server.faults.clear()
        return code


def world(stage: Stage, request: pytest.FixtureRequest) -> S3World:
    """Returns a pipeline with its table in a bucket, and the server."""
    server: S3Server = request.getfixturevalue("s3")
    new_world: S3World = S3World.on(stage, f"{{kind: files, path: '{server.bucket()}/things'}}")
    new_world.server = server
    return new_world


def refuses(method: str, part: str) -> Callable[[S3World], None]:
    """Returns a function that makes the store answer 503 until a command has ended."""

    def do(world: S3World) -> None:
        world.patches.setattr(put_if_absent.PutIfAbsent, "waits", (0.0, 0.0, 0.0))
        world.server.fail("slow_down", method, part, times=10_000)

    return do


ROWS = [
    Advice(f"503 to {method} {part}", refuses(method, part), RUN, says, [retry_step(RUN)], code=3)
    for method, part, says in [
        ("GET", "/_windrow/log/", "The store refuses it for now; nothing has to be changed"),
        ("PUT", "/_windrow/log/", "The store refuses it for now; nothing has to be changed"),
        ("POST", "/data/", "The store refuses it for now; nothing has to be changed"),
        ("PUT", "/data/", "Wait, for the store has too much to do"),
        ("PUT", "/receipts/", "The store refuses it for now; nothing has to be changed"),
    ]
]
