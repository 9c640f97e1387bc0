"""A real Kafka, one node, on loopback: for `make demo`, `windrow broker run` and the tests.

Everything it has lies in one folder.

    folder/ports.json          the ports and the cluster id, chosen once: a restart keeps them
    folder/server.properties   written at each start from the above
    folder/data/               Kafka's log; folder/formatted says that it was formatted to the end
    folder/broker.pid          pid and start time of the process
    folder/stopped             there from a stop to the next start: the end was wanted
    folder/broker.log          what it says, appended
    folder/lock                held while a process starts or stops the broker

A pid file may outlive its process, and the number may then be another program's:
nothing is signalled whose start time or command line differs.
"""

from __future__ import annotations

import base64
import fcntl
import random
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.embedded.jars import find_jars, java_command, java_problem

__all__ = ["EmbeddedBroker", "find_jars", "java_problem"]

T = TypeVar("T")

_START_SECONDS = 90.0
_STOP_SECONDS = 30.0
_SLICE_SECONDS = 0.1
# below Linux's ephemeral range: no outgoing connection can take the port between stop
# and restart
_PORTS = (20_000, 32_000)
_TAIL_LINES = 25

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=BROKER://127.0.0.1:{broker}
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
offsets.topic.segment.bytes=1048576
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
transaction.state.log.segment.bytes=1048576
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
log.retention.ms=-1
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
log.cleaner.dedupe.buffer.size=8388608
log.cleaner.backoff.ms=500
num.network.threads=2
num.io.threads=4
"""
"""One node: every replication factor is 1.

Messages have old timestamps in tests and demo, so nothing expires by time unless a
topic says so; retention and compaction, where a topic asks for them, look often. After
a kill the controller waits a session out before it takes the broker back.
"""


class _Ports(msgspec.Struct, frozen=True):
    broker: int
    controller: int
    cluster: str


_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a program that ends in a moment: half of its time went into making it fast."""


class _Pid(msgspec.Struct, frozen=True):
    """A process that can't be mistaken for a later one with the same number."""

    pid: int
    started: float


class EmbeddedBroker:
    """One broker in one folder.

    Any process may start, find, or stop it: the state is in the folder, not in this object.
    """

    def __init__(self, folder: Path, jars: Path, port: int | None = None) -> None:
        """`folder` is made if missing; `port` None: the one of the last start, else a free one."""
        self._folder = folder.resolve()
        self._jars = jars.resolve()
        self._port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:port`.

        Raises:
            UnreachableError: it was never started in this folder.
        """
        ports = self._read("ports.json", _Ports)
        if ports is None:
            raise UnreachableError(
                f"No broker was ever started in {self._folder}",
                "setup",
                "Start it first: windrow broker run",
            )
        return f"127.0.0.1:{ports.broker}"

    def running(self) -> bool:
        """Whether this folder's broker process lives."""
        return self._process() is not None

    def stopped(self) -> bool:
        """Whether its end was asked for with `stop`, by any process: tells a broker
        that was stopped from one that died.
        """
        return (self._folder / "stopped").exists()

    def start(self) -> Self:
        """Format the storage if needed, start the broker and wait until it answers.

        A broker that already runs in this folder is taken over.

        Raises:
            SpecError: it runs already, on another port than asked for.
            UnreachableError: Java is missing, a port is taken, or the broker does not
                come up; with the last lines of its log.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            process = self._process()
            if process is None:
                problem = java_problem()
                if problem:
                    raise UnreachableError(problem, "setup", "Then start again.")
                self._configure()
                self._format()
                process = self._launch()
            elif self._port not in {None, int(self.bootstrap.rpartition(":")[2])}:
                what = (
                    f"The broker of {self._folder} runs on {self.bootstrap}, not on port"
                    f" {self._port}"
                )
                raise SpecError(what, "setup", "Stop it first.")
            self._await(process)
        return self

    def stop(self) -> None:
        """SIGTERM, a bounded wait, then SIGKILL. Nothing happens if it doesn't run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As `kill -9`: what a crash of the broker looks like."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        """Started."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stopped."""
        self.stop()

    # ----------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        kept = self._read("ports.json", _Ports)
        broker = self._port or (kept.broker if kept else free_port())
        ports = _Ports(
            broker,
            kept.controller if kept else free_port(broker),
            kept.cluster if kept else _cluster_id(),
        )
        for port in (ports.broker, ports.controller):
            if not _is_free(port):
                what = (
                    f"Port {port} on 127.0.0.1, which the broker of {self._folder} needs, is taken"
                    " by another program"
                )
                raise UnreachableError(what, "setup", "End that program, or give another port.")
        self._write("ports.json", msgspec.json.encode(ports))
        text = _PROPERTIES.format(
            broker=ports.broker, controller=ports.controller, data=self._folder / "data"
        )
        self._write("server.properties", text.encode())

    def _format(self) -> None:
        """Once.

        Storage that was not formatted to the end never served anybody, so it is begun again.
        """
        done = self._folder / "formatted"
        ports = self._read("ports.json", _Ports)
        if done.exists() or ports is None:
            return
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        config = str(self._folder / "server.properties")
        command = self._java(
            [
                *_BRIEF,
                "kafka.tools.StorageTool",
                "format",
                "--cluster-id",
                ports.cluster,
                "--config",
                config,
            ]
        )
        with (self._folder / "broker.log").open("ab") as log:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                cwd=self._folder,
            ).returncode
        if code != 0:
            raise self._failed(f"Formatting the broker's storage ended with code {code}")
        done.touch()

    def _launch(self) -> psutil.Process:
        self._reap()
        (self._folder / "stopped").unlink(missing_ok=True)
        with (self._folder / "broker.log").open("ab") as log:
            self._child = subprocess.Popen(
                self._java(["kafka.Kafka", str(self._folder / "server.properties")]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )
        process = psutil.Process(self._child.pid)
        self._write("broker.pid", msgspec.json.encode(_Pid(process.pid, process.create_time())))
        return process

    def _java(self, arguments: list[str]) -> list[str]:
        options = [
            "-Xms128m",
            "-Xmx512m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
        ]
        return [java_command() or "java", *options, "-cp", f"{self._jars}/*", *arguments]

    def _await(self, process: psutil.Process) -> None:
        """Until it answers a metadata request; its death, not the clock, ends the wait early."""
        deadline = time.monotonic() + _START_SECONDS
        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        while time.monotonic() < deadline:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                pass  # not up yet: this is the question
            if ended_within(process, 0.05):
                (self._folder / "broker.pid").unlink(missing_ok=True)
                self._reap()
                raise self._failed("The broker ended before it answered")
        self._end_process(process, signal.SIGKILL)
        raise self._failed(
            f"The broker did not answer on {self.bootstrap} within {_START_SECONDS:.0f} s"
        )

    def _failed(self, what: str) -> UnreachableError:
        log = self._folder / "broker.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        return UnreachableError(
            f"{what}; the end of {log}:\n{tail}\n",
            "setup",
            "Fix what the log names and start again.",
        )

    # ----------------------------------------------------------------------------------------------

    def _end(self, sign: signal.Signals) -> None:
        if not self._folder.is_dir():
            return
        with self._locked():
            process = self._process()
            if process is not None:
                if sign == signal.SIGTERM:
                    # before the signal: who sees the end must see the reason
                    (self._folder / "stopped").touch()
                self._end_process(process, sign)
            (self._folder / "broker.pid").unlink(missing_ok=True)
            self._reap()

    def _end_process(self, process: psutil.Process, sign: signal.Signals) -> None:
        """No stranger is hit: psutil refuses to signal a process that has taken over
        the number since `process` was made.
        """
        try:
            process.send_signal(sign)
            if not ended_within(process, _STOP_SECONDS):
                process.kill()
                ended_within(process, _STOP_SECONDS)
        except psutil.NoSuchProcess:
            pass
        self._reap()

    def _reap(self) -> None:
        """Forget our child once it ended, whoever ended it."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None

    def _process(self) -> psutil.Process | None:
        """This folder's broker.

        Number, start time and command line must all be what they were: a pid file may
        outlive its process.
        """
        noted = self._read("broker.pid", _Pid)
        if noted is None:
            return None
        try:
            process = psutil.Process(noted.pid)
            same = (
                abs(process.create_time() - noted.started) < 1
                and str(self._folder / "server.properties") in process.cmdline()
            )
            return process if same and not _ended(process) else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None

    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two starts in one folder at once: the second waits, then finds the first one's broker."""
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self._folder / name).read_bytes(), type=kind)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _write(self, name: str, content: bytes) -> None:
        """Whole or not at all: a process may die in between."""
        part = self._folder / f"{name}.part"
        part.write_bytes(content)
        part.replace(self._folder / name)


def _ended(process: psutil.Process) -> bool:
    """A zombie has ended: it may be another process's child, which only that one can
    reap, and psutil would wait for it to the last.

    But not while it has threads: a killed JVM's first thread is a zombie before the
    others have let go of files and ports, and nobody can reap it till then.
    """
    try:
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except (
        psutil.NoSuchProcess
    ):  # also psutil's ZombieProcess, where a zombie's threads can't be counted
        return True


def ended_within(process: psutil.Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _ended(process):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        with suppress(psutil.TimeoutExpired, psutil.NoSuchProcess):
            process.wait(min(_SLICE_SECONDS, left))
            return True
    return True


def free_port(*others: int) -> int:
    for port in random.SystemRandom().sample(range(*_PORTS), 200):
        if port not in others and _is_free(port):
            return port
    raise UnreachableError(
        f"No free port between {_PORTS[0]} and {_PORTS[1]} on 127.0.0.1",
        "setup",
        "End some programs, or give a port.",
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _cluster_id() -> str:
    """Kafka's form of a UUID: 22 characters of URL-safe base64.

    No leading dash: its command line would take that for an option.
    """
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if not text.startswith("-") else _cluster_id()
