"""The mail sensor of docs/operations.md: a failed run's message reaches a mail server."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from tests.assets.world import World
from tests.kafka.listener import TLS
from tests.shape.readme import ROOT, blocks

OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


class Smtp(socketserver.StreamRequestHandler):
    """The part of a mail server that a client with TLS and a login needs."""

    def handle(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(TLS / "broker.pem", TLS / "broker.key.pem")
        self.say("220 here")
        while line := self.rfile.readline().decode().strip():
            word = line.partition(" ")[0].upper()
            self.server.said.append(line)  # type: ignore[attr-defined]
            if word == "EHLO":
                self.say("250-here\r\n250-STARTTLS\r\n250 AUTH PLAIN")
            elif word == "STARTTLS":
                self.say("220 go on")
                self.connection = context.wrap_socket(self.connection, server_side=True)
                self.setup_files()
            elif word == "DATA":
                self.say("354 go on")
                while (body := self.rfile.readline().decode()) not in {".\r\n", ""}:
                    self.server.said.append(body.strip())  # type: ignore[attr-defined]
                self.say("250 taken")
            else:
                self.say({"AUTH": "235 hello", "QUIT": "221 bye"}.get(word, "250 well"))
                if word == "QUIT":
                    return

    def finish(self) -> None:
        """Closes the TLS connection, which the server doesn't know."""
        super().finish()
        self.connection.close()

    def setup_files(self) -> None:
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)  # type: ignore[assignment]

    def say(self, reply: str) -> None:
        self.wfile.write(f"{reply}\r\n".encode())


@pytest.fixture
def mails() -> Iterator[Any]:
    """A mail server; `said` has all lines from clients."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp) as server:
        server.said = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(60)


def test_a_refused_window_is_mailed(
    world: World, mails: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's sensor sends what was refused, why, and what to do, to a server with TLS."""
    for name, value in {
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(mails.server_address[1]),
        "SMTP_PASSWORD": "sesame",
        "SSL_CERT_FILE": str(TLS / "broker.pem"),
    }.items():
        monkeypatch.setenv(name, value)
    (code,) = (block for block in blocks("python", OPERATIONS) if "# alerts.py" in block)
    scope: dict[str, Any] = {}
    exec(compile(code, "alerts.py", "exec"), scope)
    world.relax(max_dead_ratio=0.0)
    world.fill(1)
    world.send(0, 30, b"poison")
    run = world.run(0)
    assert not run.success
    failed = world.instance.get_run_by_id(run.run_id)
    assert failed is not None
    record = next(
        r.event_log_entry.dagster_event
        for r in world.instance.get_records_for_run(run.run_id).records
        if r.event_log_entry.dagster_event_type == dg.DagsterEventType.RUN_FAILURE
    )
    assert record is not None
    context = dg.build_run_status_sensor_context(
        "mail_on_failure", record, world.instance, failed
    ).for_run_failure()
    scope["mail"](context)
    text = " ".join(mails.said)
    assert "Subject: things_windows failed" in text
    assert f"Window {world.key(0)}: " in text
    assert "See `windrow help refused-hour`." in text
