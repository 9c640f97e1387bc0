"""A failed TLS handshake is an error of the spec and is reported at once.

A broker that is only unreachable is not.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.contracts.reading import batches_of
from tests.kafka.listener import TLS, listening
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties
from windrow.ingest.kafka.error_codes import untrusted
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.source.reader.reader import KafkaReader

HANG_SECONDS = 60.0
"""Far more seconds than a refusal takes, and far fewer than the requests' timeout."""

PATIENCE = 300.0


def client(ca: Path | None) -> dict[str, object]:
    """Returns the client properties."""
    return {"security.protocol": "SSL"} | ({} if ca is None else {"ssl.ca.location": str(ca)})


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("ca", [TLS / "other.pem", None])
def test_a_wrong_ca_is_told_at_once(ca: Path | None) -> None:
    """Each request with a wrong CA raises SpecError before the timeout.

    The error has the property's name.
    """
    with listening() as bootstrap:
        broker = KafkaBroker(bootstrap, client(ca), patience_seconds=PATIENCE)
        for ask in (broker.cluster_id, lambda: broker.topic("t"), broker.names):
            began = time.monotonic()
            with pytest.raises(SpecError, match=r"certificate verify failed") as caught:
                ask()
            assert "ssl.ca.location" in caught.value.advice
            assert time.monotonic() - began < HANG_SECONDS


@pytest.mark.slow
def test_a_wrong_ca_where_the_task_runs_is_told_at_once() -> None:
    """A reader with a wrong CA raises SpecError too, because an executor's file may differ."""
    with listening() as bootstrap:
        properties = consumer_properties(bootstrap, client(TLS / "other.pem"))
        reader = KafkaReader(properties, ReadPlan("c", {"t": "id"}, "fail"), stall_seconds=PATIENCE)
        began = time.monotonic()
        with pytest.raises(SpecError, match=r"certificate verify failed") as caught:
            batches_of(reader, Split("t", 0, 0, 1))
        assert "ssl.ca.location" in caught.value.advice
        assert time.monotonic() - began < HANG_SECONDS


@pytest.mark.slow
def test_a_broker_that_asks_for_a_certificate_says_so() -> None:
    """A broker that requires a client's certificate causes an error that says so."""
    with listening(clients=TLS / "other.pem") as bootstrap:
        broker = KafkaBroker(bootstrap, client(TLS / "broker.pem"), patience_seconds=PATIENCE)
        with pytest.raises(SpecError, match="certificate required") as caught:
            broker.cluster_id()
        assert "the client's certificate" in caught.value.advice


def test_a_broker_that_asks_for_tls_leads_to_the_page() -> None:
    """Who has set no TLS is told where it is set, and which page says how."""
    with listening() as bootstrap, pytest.raises(UnreachableError) as caught:
        KafkaBroker(bootstrap, {}, patience_seconds=1.0).cluster_id()
    assert "under client of a cluster in a windrow.yaml (windrow help logins)" in str(caught.value)


def test_the_right_ca_is_no_mistake() -> None:
    """Silence after a good handshake is an unreachable cluster."""
    with listening() as bootstrap, pytest.raises(UnreachableError):
        KafkaBroker(bootstrap, client(TLS / "broker.pem"), patience_seconds=1.0).cluster_id()


@pytest.mark.slow
def test_a_connection_that_breaks_in_the_handshake_may_pass() -> None:
    """A connection that breaks during the handshake is retried.

    The reason names the property. A broker that restarts looks the same.
    """
    with (
        listening(tls=False) as bootstrap,
        pytest.raises(UnreachableError, match=r"SSL_HANDSHAKE|PLAINTEXT"),
    ):
        KafkaBroker(bootstrap, client(TLS / "broker.pem"), patience_seconds=2.0).cluster_id()


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        (
            (
                "error:0A000086:SSL routines::certificate verify failed (after 3ms in state"
                " SSL_HANDSHAKE)"
            ),
            True,
        ),
        (
            (
                "Receive failed: error:0A000418:SSL routines::tlsv1 alert unknown ca: SSL alert"
                " number 48"
            ),
            True,
        ),
        ("Receive failed: error:0A000126:SSL routines::unexpected eof while reading", False),
        ("Disconnected: connection reset by peer (after 0ms in state SSL_HANDSHAKE)", False),
    ],
)
def test_what_a_broken_connection_says_is_no_refusal(text: str, is_so: bool) -> None:
    """Only OpenSSL's texts about certificates are refusals. A broken connection is retried."""
    assert untrusted(text) is is_so
