"""Pipelines whose cluster wants a token: source, Kafka sink and dead letters, by the command."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.harness import millis
from tests.integration.user import HERE, HOURLY, User
from tests.kafka.produce import Put, create_topic, produce
from tests.kafka.secure import SecureBroker
from tests.kafka.tokens import bearer
from tests.permissions.guarded import grant
from tests.sinks.kafka.world import read_committed
from windrow.ingest.kafka.embedded.server import find_jars
from windrow.ingest.kafka.rights import Right

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

HOUR = "2026-01-05T01:00:00Z"
SLOWLY = """\
import time

import polars as pl


def slowly(rows: pl.DataFrame) -> pl.DataFrame:
    time.sleep(0.5)
    return rows
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure"), find_jars()) as server:
        assert isinstance(server, SecureBroker)
        yield server


class TokenUser(User):
    """A user whose cluster is named in a windrow.yaml, and takes tokens that a command prints.

    Attributes:
        token: the file with the token, which somebody renews.
        source: the topic that is read.
        target: the topic of the table.
        dead: the topic of the dead letters.
    """

    def __init__(self, server: SecureBroker, folder: Path, count: int, **sections: Any) -> None:
        self.source, self.target, self.dead = (create_topic(server.bootstrap) for _ in range(3))
        puts = [Put(json.dumps({"id": n, "name": None}).encode(), millis(1)) for n in range(count)]
        produce(server.bootstrap, self.source, [*puts, Put(b"no json", millis(1, 1))])
        self.setup, self.folder, self.token = None, folder, folder / "token"  # type: ignore[assignment]
        print_token = f"print(open({str(self.token)!r}).read())"
        oauth = {
            "method": "token",
            "token": {"command": [sys.executable, "-c", print_token], "lifetime_seconds": 1},
        }
        cluster = {"bootstrap_servers": server.bearer, "client": bearer(**oauth)}
        spec = {
            "id": "things",
            "source": {"cluster": "prod", "topic": self.source},
            "window": yaml.safe_load(f"{{{HOURLY}}}"),
            "decode": {"schema": "things.py:Thing"},
            "sink": {
                "kind": "kafka",
                "cluster": "prod",
                "topic": self.target,
                "staging": "./staging",
                "atomic_window": True,
            },
            "dead_letters": {"topic": self.dead, "cluster": "prod"},
            "state": "./state.db",
            "limits": {"max_dead_ratio": 0.5},
            **sections,
        }
        spec["source"] |= sections.get("more_source", {})
        spec.pop("more_source", None)
        (folder / "things.py").write_text((HERE / "things.py").read_text())
        (folder / "windrow.yaml").write_text(yaml.safe_dump({"clusters": {"prod": cluster}}))
        (folder / "things.yaml").write_text(yaml.safe_dump(spec))

    def assert_published(self, server: SecureBroker, count: int) -> None:
        """Checks that each row is published once, and the dead letter at least once."""
        published = [
            json.loads(m.value() or b"")["id"]
            for m in read_committed(server.bootstrap, self.target)
        ]
        assert published == list(range(count))
        assert {m.value() for m in read_committed(server.bootstrap, self.dead)} == {b"no json"}
        assert self.types("verify", "--deep")["findings"] == []


def test_a_window_by_token(server: SecureBroker, tmp_path: Path) -> None:
    """Driver, Spark's workers, sink and dead letters log in by the tokens of one windrow.yaml."""
    user = TokenUser(server, tmp_path, 20)
    with server.tokens.renewing(user.token, 60):
        assert {check["level"] for check in user.types("doctor")["checks"]} <= {"ok", "warn"}
        user.types("run", "--window", HOUR)
        user.types("lag")
        user.assert_published(server, 20)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"audience": "other"}, ("invalid_token", "Look at client.oauth of the cluster")),
        ({"subject": "stranger"}, ("this client lacks Read on the topic", "kafka-acls.sh")),
    ],
    ids=["login", "rights"],
)
def test_a_token_that_the_cluster_refuses(
    server: SecureBroker, tmp_path: Path, claims: Mapping[str, str], told: Sequence[str]
) -> None:
    """A token for another audience leads `doctor`, `run` and `lag` to `client.oauth`; one of a
    client that may log in, and not read, leads them to the missing right.
    """
    user = TokenUser(server, tmp_path, 1)
    grant(server.bootstrap, "reader", [Right("Read", "topic", user.source)])
    token = server.tokens.issue(600, **claims)
    user.token.write_text(token)
    for command in (("doctor",), ("run", "--window", HOUR), ("lag",)):
        printed = json.dumps(user.types(*command, code=2))
        assert [words for words in told if words not in printed] == [], printed
        assert token not in printed


@pytest.mark.long
def test_a_window_that_outlasts_its_tokens_under_kills(
    server: SecureBroker, tmp_path: Path
) -> None:
    """A window takes 90 seconds, and its tokens are valid for 20: the run commits, also after two
    runs that were killed. Kafka ends each session after three seconds.
    """
    count = 180
    (tmp_path / "slowly.py").write_text(SLOWLY)
    user = TokenUser(
        server,
        tmp_path,
        count,
        transform={"steps": [{"python": "slowly.py:slowly", "schema": "things.py:Thing"}]},
        more_source={"tuning": {"batch_messages": 1}},
    )
    with server.tokens.renewing(user.token, 20):
        for seconds in (40, 70):
            with user.starts("run", "--window", HOUR) as dies:
                killer = threading.Timer(seconds, dies.kill)
                killer.start()
                printed = dies.communicate(timeout=300)
                killer.join(100)
            assert dies.returncode == -9, printed
        user.starts_and_ends("run", "--window", HOUR)
        user.assert_published(server, count)
