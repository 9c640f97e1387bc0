"""A kind of sink under the contract suites, made by its `SinkWorld`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.world import SinkWorld
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest


class OfAWorld(SinkUnderTest):
    """A sink under test that its `SinkWorld` makes."""

    world: SinkWorld

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> None:
        name = self.world.server
        self.server = request.getfixturevalue(name) if name else None

    def make(self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT) -> Any:
        return self.world.sink_at(self.world.new_location(tmp_path, self.server), schema, metadata)

    def reopen(self, sink: Any) -> Any:
        return self.world.reopen(sink)

    def pieces(self, sink: Any) -> list[pa.Table]:
        return self.world.pieces(sink)

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        return self.world.no_answer(sink)
