"""A Kafka broker on 127.0.0.1, for `make demo`, `windrow broker run` and the tests.

All of its files are in one folder:

    folder/ports.json          the ports and the cluster id; a restart keeps them
    folder/server.properties   written at each start from ports.json
    folder/data/               Kafka's log
    folder/formatted           exists once folder/data is formatted completely
    folder/broker.pid          pid and start time of the process
    folder/stopped             exists from a stop to the next start: the broker did not crash
    folder/broker.log          the broker's output, appended
    folder/lock                locked while a process starts or stops the broker

Kafka's jars are in a cache. Maven fills the cache once, and only with the jars of
kafka-jars.sha256.

A pid file may outlive its process, and another process may then have the pid. So a
process is signalled only if its start time is the noted one.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
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

from windrow.ingest.errors import SpecError, UnreachableError, join_first_few
from windrow.ingest.java import install_advice, java_command, java_problem
from windrow.ingest.waiting import waiting_for

KAFKA = "4.3.0"
POM = Path(__file__).with_name("kafka-pom.xml")
JAR_HASHES = POM.with_name("kafka-jars.sha256")
_MAVEN_SECONDS = 600


def find_jars() -> Path:
    """Returns the folder with Kafka's jars: $WINDROW_KAFKA_JARS, or the project's cache.

    Maven fills the cache on first use.

    Raises:
        SpecError: $WINDROW_KAFKA_JARS names a folder without Kafka's jars.
        UnreachableError: Maven is missing, could not download the jars, or has others.
    """
    named = os.environ.get("WINDROW_KAFKA_JARS")
    if named:
        if not any(Path(named).glob("kafka_2.13-*.jar")):
            raise SpecError(
                f"WINDROW_KAFKA_JARS is {named}, which holds no kafka_2.13 jar",
                "setup",
                "Name a folder with Kafka's jars, or unset it.",
            )
        return Path(named)
    cache = root() / ".windrow" / f"kafka-{KAFKA}"
    return cache if cache.is_dir() else _fetch(cache)


def root() -> Path:
    """Returns the checkout, or the current folder if windrow is an installed package."""
    checkout = Path(__file__).parents[4]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def _fetch(cache: Path) -> Path:
    """Downloads the jars to a temporary folder and renames it, so a cache is always complete."""
    maven = shutil.which("mvn")
    if maven is None:
        raise UnreachableError(
            "Maven is needed to fetch Kafka's jars, and there is no mvn on the path",
            "setup",
            f"Either {install_advice('maven')}, or name a folder with Kafka's jars in"
            " WINDROW_KAFKA_JARS.",
        )
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-", dir=cache.parent) as work:
        pom = shutil.copy(POM, Path(work) / "pom.xml")
        jars = Path(work) / "jars"
        with waiting_for(f"Maven to fetch Kafka's jars into {cache}, once"):
            _maven(
                [
                    maven,
                    "-q",
                    "-B",
                    "-f",
                    str(pom),
                    "dependency:copy-dependencies",
                    f"-DoutputDirectory={jars}",
                ]
            )
        if changed := _changed_jars(jars):
            raise UnreachableError(
                f"Maven fetched other jars than Kafka {KAFKA} has: {join_first_few(changed)}",
                "setup",
                "Delete them from Maven's local repository (~/.m2/repository) and start again. If"
                " that doesn't help, the server in Maven's settings changes files, or lacks some.",
            )
        try:
            jars.rename(cache)
        except OSError:
            if not cache.is_dir():  # otherwise another process was first, with the same jars
                raise
    return cache


def _changed_jars(folder: Path) -> list[str]:
    """Returns the names of the jars that are missing, changed or not in kafka-jars.sha256."""
    lines = [line.split() for line in JAR_HASHES.read_text(encoding="utf-8").splitlines()]
    pinned = {(path.rpartition("/")[2], digest) for digest, path in lines}
    fetched = {(jar.name, hashlib.sha256(jar.read_bytes()).hexdigest()) for jar in folder.iterdir()}
    return sorted({name for name, _ in pinned ^ fetched})


def _maven(command: list[str]) -> None:
    typed = " ".join(command)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_MAVEN_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(
            f"Maven took longer than {_MAVEN_SECONDS} s", "setup", f"Try by hand: {typed}"
        ) from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise UnreachableError(
            f"Maven could not fetch Kafka's jars:\n{tail}\n",
            "setup",
            f"Look at Maven's settings and the network; by hand: {typed}",
        )


_POLL_SECONDS = 0.1


class _Noted(msgspec.Struct, frozen=True):
    pid: int
    started: float


def note(file: Path, pid: int) -> psutil.Process:
    """Writes a process's pid and start time into a file, atomically; returns the process."""
    process, part = psutil.Process(pid), file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(_Noted(pid, process.create_time())))
    part.replace(file)
    return process


def find_noted(file: Path) -> psutil.Process | None:
    """Returns the process that was noted in a file, or None if it has ended."""
    try:
        record = msgspec.json.decode(file.read_bytes(), type=_Noted)
        process = psutil.Process(record.pid)
        same = abs(process.create_time() - record.started) < 1
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, psutil.NoSuchProcess):
        return None
    return process if same and not _has_ended(process) else None


def end(processes: list[psutil.Process], sign: signal.Signals, seconds: float) -> None:
    """Signals processes, and kills those that haven't ended after some seconds.

    psutil never signals a different process that has the same pid now.
    """
    for current_signal in (sign, signal.SIGKILL):
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                process.send_signal(current_signal)
        deadline = time.monotonic() + seconds
        processes = [p for p in processes if not ended_within(p, deadline - time.monotonic())]


def ended_within(process: psutil.Process, seconds: float) -> bool:
    """Waits up to `seconds` for the end of a process; returns whether it has ended."""
    deadline = time.monotonic() + seconds
    while not _has_ended(process):
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0:
            return False
        with suppress(psutil.TimeoutExpired, psutil.NoSuchProcess):
            process.wait(min(_POLL_SECONDS, remaining_seconds))
            return True
    return True


def _has_ended(process: psutil.Process) -> bool:
    """Returns whether a process has ended; a zombie without other threads counts as ended.

    Only a zombie's parent can reap it, and psutil would wait for that. But a zombie with
    threads hasn't ended: the first thread of a killed JVM is a zombie while the others
    still hold files and ports.
    """
    try:
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    # also psutil's ZombieProcess, which it raises if it can't count a zombie's threads
    except psutil.NoSuchProcess:
        return True


T = TypeVar("T")

_START_SECONDS = 90.0
_STOP_SECONDS = 30.0
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
log.retention.ms=-1
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
log.cleaner.dedupe.buffer.size=8388608
log.cleaner.backoff.ms=500
num.network.threads=2
num.io.threads=4
"""
"""Settings of a single broker, with a replication factor of 1.

Messages have old timestamps in tests and in the demo, so no message expires by time unless
its topic sets a retention. Retention and compaction run often, for topics that use them. The
broker's session timeout is Kafka's default of 9 s. After a kill the controller waits that
long. With a shorter timeout, a busy machine loses a topic's leader for a moment.
"""


class _Ports(msgspec.Struct, frozen=True):
    broker: int
    controller: int
    cluster: str


_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java program that ends soon; without them the JIT took half of its time."""


class EmbeddedBroker:
    """A broker in a folder.

    Any process may start, find or stop the broker: its state is in the folder, not in this
    object.
    """

    def __init__(self, folder: Path, jars: Path | None = None, port: int | None = None) -> None:
        """Starts nothing yet.

        Args:
            folder: the folder of the broker's files.
            jars: the folder with Kafka's jars; None: `find_jars` finds it at the start.
            port: the broker's port; None: the port of the last start, or a free one.
        """
        self._folder = folder.resolve()
        self._jars = jars and jars.resolve()
        self._port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The broker's address: 127.0.0.1 and its port.

        Raises:
            UnreachableError: no broker was ever started in this folder.
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
        """Returns whether the broker's process lives."""
        return self.process() is not None

    def stopped(self) -> bool:
        """Returns whether `stop` was called since the last start, by any process."""
        return (self._folder / "stopped").exists()

    def start(self) -> Self:
        """Formats the storage if needed, starts the broker and waits until it answers.

        A broker that already runs in this folder is used.

        Raises:
            SpecError: the broker already runs on another port.
            UnreachableError: Java is missing, a port is taken, or the broker does not
                start. The text has the last lines of the broker's log.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock_folder():
            process = self.process()
            if process is None:
                problem = java_problem()
                if problem:
                    raise UnreachableError(problem, "setup", "Then start again.")
                self._configure()
                self._format()
                process = self._launch()
            elif self._port not in {None, int(self.bootstrap.rpartition(":")[2])}:
                raise SpecError(
                    f"The broker of {self._folder} runs on {self.bootstrap}, not on port"
                    f" {self._port}",
                    "setup",
                    "Stop it first.",
                )
            self._wait_until_ready(process)
        return self

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL if the broker hasn't ended after a while."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, which simulates a crash of the broker."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        """Starts the broker."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops the broker."""
        self.stop()

    # ----------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        saved_ports = self._read("ports.json", _Ports)
        broker = self._port or (saved_ports.broker if saved_ports else free_port())
        ports = _Ports(
            broker,
            saved_ports.controller if saved_ports else free_port(broker),
            saved_ports.cluster if saved_ports else _cluster_id(),
        )
        for port in (ports.broker, ports.controller):
            if not _is_free(port):
                raise UnreachableError(
                    f"Port {port} on 127.0.0.1, which the broker of {self._folder} needs, is taken"
                    " by another program",
                    "setup",
                    "End that program, or give another port.",
                )
        self._write("ports.json", msgspec.json.encode(ports))
        text = _PROPERTIES.format(
            broker=ports.broker, controller=ports.controller, data=self._folder / "data"
        )
        self._write("server.properties", text.encode())

    def _format(self) -> None:
        """Formats the storage, once.

        Storage that isn't formatted completely has never held any data. So it is deleted and
        formatted again.
        """
        done = self._folder / "formatted"
        ports = self._read("ports.json", _Ports)
        if done.exists() or ports is None:
            return
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        config = str(self._folder / "server.properties")
        command = self._java(
            [
                *_SHORT_LIVED,
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
            raise self._broker_error(f"Formatting the broker's storage ended with code {code}")
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
        return note(self._folder / "broker.pid", self._child.pid)

    def _java(self, arguments: list[str]) -> list[str]:
        options = [
            "-Xms128m",
            "-Xmx512m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
        ]
        return [
            java_command() or "java",
            *options,
            "-cp",
            f"{self._jars or find_jars()}/*",
            *arguments,
        ]

    def _wait_until_ready(self, process: psutil.Process) -> None:
        """Waits until the broker answers a request for metadata, or its process ends."""
        deadline = time.monotonic() + _START_SECONDS
        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        while time.monotonic() < deadline:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                pass  # not ready yet
            if ended_within(process, 0.05):
                (self._folder / "broker.pid").unlink(missing_ok=True)
                self._reap()
                raise self._broker_error("The broker ended before it answered")
        end([process], signal.SIGKILL, _STOP_SECONDS)
        self._reap()
        raise self._broker_error(
            f"The broker did not answer on {self.bootstrap} within {_START_SECONDS:.0f} s"
        )

    def _broker_error(self, message: str) -> UnreachableError:
        log = self._folder / "broker.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        return UnreachableError(
            f"{message}; the end of {log}:\n{tail}\n",
            "setup",
            "Fix what the log names and start again.",
        )

    # ----------------------------------------------------------------------------------------------

    def _end(self, sign: signal.Signals) -> None:
        if not self._folder.is_dir():
            return
        with self._lock_folder():
            process = self.process()
            if process is not None:
                if sign == signal.SIGTERM:
                    # before the signal: a process that sees the end must see that it was wanted
                    (self._folder / "stopped").touch()
                end([process], sign, _STOP_SECONDS)
            (self._folder / "broker.pid").unlink(missing_ok=True)
            self._reap()

    def _reap(self) -> None:
        """Reaps the child once it has ended."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None

    def process(self) -> psutil.Process | None:
        """Returns the broker's process, or None if it doesn't run."""
        return find_noted(self._folder / "broker.pid")

    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Locks the folder, so the second of two simultaneous starts finds the first's broker."""
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self._folder / name).read_bytes(), type=kind)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _write(self, name: str, content: bytes) -> None:
        """Writes a file completely or not at all, even if this process is killed."""
        part = self._folder / f"{name}.part"
        part.write_bytes(content)
        part.replace(self._folder / name)


def free_port(*others: int) -> int:
    """Returns a free port of this machine that is none of the others."""
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
    """Makes a UUID in Kafka's form: 22 characters of URL-safe base64.

    It doesn't begin with a dash, because Kafka's command line would take it for an option.
    """
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if not text.startswith("-") else _cluster_id()
