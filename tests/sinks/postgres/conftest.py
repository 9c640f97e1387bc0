"""A database of its own for each test, on the session's server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Its URL."""
    url = postgres.replace("postgresql+psycopg://", "postgresql://", 1)
    name = f"sink_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    base, _, query = url.partition("?")
    yield f"{base.rpartition('/')[0]}/{name}?{query}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
