"""The engine without Spark keeps the contract of engines."""

from __future__ import annotations

import pytest

from tests.contracts.engine_contract import EngineContract
from tests.runner.spark.tasks import DiesInMemory
from windrow.ingest.testing.engine import LocalEngine


class TestLocalEngine(EngineContract):
    """The contract of engines, in this process."""

    dies = DiesInMemory

    @pytest.fixture
    def engine(self) -> LocalEngine:
        return LocalEngine()
