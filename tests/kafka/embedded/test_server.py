"""The embedded broker has its state in a folder. Any process may find or stop it.

No other program is ever signalled.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, ended_within, find_jars
from windrow.ingest.model.boundary import TopicPartition


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """A program that isn't windrow's, and ends when the test tells it to."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield psutil.Process(child.pid)
    child.communicate(b"\n", timeout=30)
    assert child.returncode == 0, "somebody else ended it"


def note(folder: Path, pid: int, started: float) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "broker.pid").write_bytes(msgspec.json.encode({"pid": pid, "started": started}))


@pytest.mark.long
@pytest.mark.broker
def test_a_restart_keeps_topics_ids_and_the_port(tmp_path: Path) -> None:
    """The address, the cluster, the topic and the messages survive a stop and a kill."""
    broker = EmbeddedBroker(tmp_path / "k", find_jars())
    with broker:
        topic = create_topic(broker.bootstrap)
        produce(broker.bootstrap, topic, [Put(b"a", 1), Put(b"b", 2)])
        first = (broker.bootstrap, *facts(broker.bootstrap, topic))
    assert not broker.running()
    with broker:
        assert (broker.bootstrap, *facts(broker.bootstrap, topic)) == first
        broker.kill()
        assert not broker.running()
        broker.start()
        assert (broker.bootstrap, *facts(broker.bootstrap, topic)) == first


def facts(bootstrap: str, topic: str) -> tuple[str, str, int]:
    client = KafkaBroker(bootstrap, {})
    tp = TopicPartition(topic, 0)
    return client.cluster_id(), client.topic(topic).topic_id, client.stable_ends([tp])[tp].offset


@pytest.mark.broker
def test_another_process_finds_the_running_broker_and_may_stop_it(tmp_path: Path) -> None:
    """A second start in the same folder finds the running broker.

    The broker listens on loopback only. `stop` works from any process, and twice.
    """
    with EmbeddedBroker(tmp_path / "k", find_jars()) as broker:
        second_broker = EmbeddedBroker(tmp_path / "k", find_jars())
        pid = (tmp_path / "k" / "broker.pid").read_bytes()
        assert second_broker.start().bootstrap == broker.bootstrap
        assert (tmp_path / "k" / "broker.pid").read_bytes() == pid
        process = psutil.Process(msgspec.json.decode(pid)["pid"])
        assert {
            c.laddr.ip.removeprefix("::ffff:")
            for c in process.net_connections()
            if c.status == psutil.CONN_LISTEN
        } == {"127.0.0.1"}
        with pytest.raises(SpecError, match="not on port"):
            EmbeddedBroker(tmp_path / "k", find_jars(), port=1).start()
        assert not broker.stopped()
        second_broker.stop()
        assert not broker.running()
        assert broker.stopped()
        broker.stop()


def test_a_pid_that_belongs_to_a_stranger_now_is_left_alone(
    tmp_path: Path, stranger: psutil.Process
) -> None:
    """A pid file with another program's pid and another start time causes no signal."""
    broker = EmbeddedBroker(tmp_path / "k", tmp_path)
    note(tmp_path / "k", stranger.pid, stranger.create_time() - 1000)
    assert not broker.running()
    broker.kill()
    broker.stop()
    assert not (tmp_path / "k" / "broker.pid").exists()
    assert stranger.is_running()


OWNER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
input()
"""  # noqa: E501
"""A program that starts a process like a broker, and doesn't reap it."""


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_broker_that_its_owner_has_not_reaped_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """A process that stops another process's broker doesn't wait until the owner reaps it.

    The owner can distinguish a stop from a crash.
    """
    monkeypatch.setattr("windrow.ingest.kafka.embedded.server._STOP_SECONDS", 3600.0)
    properties = str(tmp_path / "server.properties")
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, properties], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        note(tmp_path, child.pid, child.create_time())
        broker = EmbeddedBroker(tmp_path, tmp_path)
        assert broker.running()
        broker.stop() if is_stopped else broker.kill()
        assert child.status() == psutil.STATUS_ZOMBIE
        assert (broker.running(), broker.stopped()) == (False, is_stopped)
        owner.communicate(b"\n", timeout=30)


HEADLESS = """
import ctypes, sys, threading
def serve():
    print(flush=True)
    input()
threading.Thread(target=serve).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""A program whose first thread has ended while another works, like a JVM that is being killed."""


def test_a_broker_runs_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    """A process whose first thread is a zombie still runs.

    It holds files and ports, and can't be reaped yet.
    """
    command = [sys.executable, "-c", HEADLESS, str(tmp_path / "server.properties")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = psutil.Process(child.pid)
        assert ended_within(process, 0.3) is False
        child.communicate(b"\n", timeout=30)
        assert ended_within(process, 30) is True


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"pid": "x"}', b'{"pid": 4194305, "started": 1.0}']
)
def test_a_stale_or_broken_pid_file_means_not_running(tmp_path: Path, content: bytes) -> None:
    """A pid file without a running process, or a truncated one, means that no broker runs."""
    (tmp_path / "broker.pid").write_bytes(content)
    broker = EmbeddedBroker(tmp_path, tmp_path)
    assert not broker.running()
    broker.stop()


def test_never_started(tmp_path: Path) -> None:
    """A broker that was never started has no address, and can be stopped."""
    broker = EmbeddedBroker(tmp_path / "k", tmp_path)
    broker.stop()
    assert not broker.running()
    with pytest.raises(UnreachableError, match="windrow broker run"):
        _ = broker.bootstrap


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """A port of another program raises UnreachableError at once."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(UnreachableError, match=f"Port {port}"):
            EmbeddedBroker(tmp_path / "k", tmp_path, port=port).start()


def test_a_broker_that_can_not_start_shows_its_log(tmp_path: Path) -> None:
    """A broker that can't start raises UnreachableError with the last lines of its log."""
    with pytest.raises(UnreachableError, match="StorageTool"):
        EmbeddedBroker(tmp_path / "k", tmp_path).start()


def test_a_broker_that_dies_early_is_told_from_a_slow_one(tmp_path: Path) -> None:
    """A broker that dies early is distinguished from a slow one.

    The wait ends with the process, and nothing keeps running.
    """
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "formatted").touch()
    broker = EmbeddedBroker(tmp_path / "k", tmp_path)
    with pytest.raises(UnreachableError, match="ended before it answered"):
        broker.start()
    assert not broker.running()
