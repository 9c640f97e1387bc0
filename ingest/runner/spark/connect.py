"""Client of a Spark Connect server that is up already.

`windrow spark run` keeps such a server (`ingest.runner.spark.server`). Tasks are the same as on
any Spark (`ingest.runner.spark.engine`). This module handles the differences: a server may be
down or restarted, may have another environment, or may have ended a session. Secrets that are
sent to it must be encrypted on the network.

If the workers run on the server's machine, they have the server's environment, and the client
must have the same. If they run on a cluster, windrow's code is sent to them with each job of a
client, as from any driver (`ingest.runner.spark.cluster`).
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.ingest.errors import SpecError, UnreachableError, require_extra
from windrow.ingest.runner.spark.cluster import own_code
from windrow.ingest.runner.spark.local import is_local
from windrow.ingest.runner.spark.pyspark_internals import (
    BUFFER_BYTES,
    RETRIES_WARNING,
    WRONG_TOKEN,
)
from windrow.ingest.waiting import waiting_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORT = 15002
"""The default port of Spark Connect."""

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # a name, not a token  # noqa: S105
"""The environment variable with the token that a client must know.

Spark's server and client read it themselves.
"""

ENVIRONMENT = "spark.windrow.environment"
"""The property of a server with the text of its `environment()`."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine in an address."""

_BUFFER_BYTES, _KINDS = 65_536, 4_096
"""Spark's default size of the buffer, and the number of sizes that `buffer_bytes` uses."""

_ADDRESS = re.compile(
    r"sc://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?/?(?P<tls>;use_ssl=true)?"
)


def environment() -> str:
    """Returns a text that identifies this environment: windrow, Python and Spark.

    Tasks must be pickled and unpickled in the same environment. The text has versions and
    folders.
    """
    code = Path(__file__).parents[3]
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"windrow {version('windrow-ingest')} in {code}, Python {python} of {sys.prefix}, Spark"
        f" {version('pyspark')}"
    )


@dataclass
class ConnectedSpark:
    """This client's session on a Spark Connect server; it ends with `close`.

    If the server needs a token, the environment has it (`TOKEN`).

    Attributes:
        address: `sc://HOST:PORT`.
    """

    address: str
    _session: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Checks the address.

        Raises:
            SpecError: it is no address, has more than host and port, or secrets would be
                sent unencrypted.
        """
        _client_address(self.address)

    def session(self) -> SparkSession:
        """Returns the session; makes one if there is none, or if the server has ended it.

        A server ends a session after an hour without a request, or with a restart.

        Raises:
            SpecError: Spark Connect's packages aren't installed.
            UnreachableError: no server answers at the address; or it has another
                environment, or refuses the token.
        """
        if self._session is not None:
            try:
                return self._check_session(self._session)
            except UnreachableError:
                self.close()
        self._session = self._new_session()
        begun = self._check_session(self._session)
        if not is_local(str(begun.conf.get("spark.master", ""))):
            begun.conf.set(BUFFER_BYTES, str(buffer_bytes(own_code().digest)))
        return begun

    def close(self) -> None:
        """Ends the session, here and on the server."""
        session, self._session = self._session, None
        if session is not None:
            end_session(session)

    def _new_session(self) -> Any:
        """Makes a session. Sends nothing yet."""
        # imported here: these modules load gRPC
        with require_extra("connect", "No Spark Connect server can be asked"):
            from pyspark.sql.connect.client import DefaultChannelBuilder
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession
        # windrow raises an error instead of Spark's warning
        warnings.filterwarnings("ignore", RETRIES_WARNING)
        session = SparkSession(DefaultChannelBuilder(_client_address(self.address)))
        # It repeats a call for three seconds; Spark's default policy does so for ten minutes.
        patience = DefaultPolicy(
            max_retries=4, initial_backoff=100, backoff_multiplier=3.0, max_backoff=2000, jitter=100
        )
        session.client.set_retry_policies([patience])
        return session

    def _check_session(self, session: Any) -> SparkSession:
        """Returns the session, if the server answers and its environment fits.

        Raises:
            UnreachableError: the server doesn't answer, has another environment, or refuses
                the token.
        """
        from pyspark.errors import PySparkException  # imported here: it loads Spark

        try:
            with waiting_for(f"the Spark at {self.address}"):
                server = session.conf.get(ENVIRONMENT, None)
                is_local_master = is_local(session.conf.get("spark.master", ""))
            differs = _difference(server, None if is_local_master else session.version)
        except PySparkException as failed:
            if WRONG_TOKEN in str(failed):
                message = (
                    f"The Spark Connect server at {self.address} doesn't take the token, or"
                    " needs one"
                )
                advice = f"Give the server's, by {TOKEN} in the environment."
            else:
                port = _client_address(self.address).rpartition(":")[2].partition("/")[0]
                option = "" if port == str(PORT) else f" --port {port}"
                message, advice = (
                    f"No Spark Connect server answers at {self.address}",
                    f"Start it (windrow spark run{option}), or wait until it is up.",
                )
            raise UnreachableError(
                message, "setup", f"{advice} Nothing was read or committed."
            ) from failed
        if differs is not None:
            raise UnreachableError(
                f"The Spark Connect server at {self.address} {differs}",
                "setup",
                "Nothing was read or committed. End it, and start it with this environment's"
                " `windrow spark run`.",
            )
        return session  # type: ignore[no-any-return]  # pyspark's two kinds of sessions have one interface


def another_session(session: Any) -> SparkSession:
    """Opens another session of a client, on the same server.

    It has the same retry policy as the first session, and workers with the same code. It
    shares no other settings.
    """
    another = session.newSession()
    another.client.set_retry_policies(session.client.get_retry_policies())
    another.conf.set(BUFFER_BYTES, session.conf.get(BUFFER_BYTES))
    return another  # type: ignore[no-any-return]  # both kinds of sessions have one interface


def end_session(session: Any) -> None:
    """Ends a session, here and on the server."""
    session.client.set_retry_policies([])  # no retries: if the server is gone, so is the session
    session.stop()


def _difference(server: str | None, spark: str | None) -> str | None:
    """Returns a clause about how a server differs from this client; None if it doesn't.

    Args:
        server: the server's environment; None if `windrow spark run` didn't start it.
        spark: the version of the server's Spark, if its workers run on a cluster. Then only
            this version is compared: workers get windrow's code, and check the client's
            versions themselves (`ingest.runner.spark.worker_bootstrap`). Otherwise None.
    """
    if server is None:
        return f"was not started by `windrow spark run`, and this client is {environment()}"
    if spark is None:
        return (
            None
            if server == environment()
            else f"runs {server}, and this client is {environment()}"
        )
    return (
        None
        if spark == version("pyspark")
        else f"runs Spark {spark}, and this client has {version('pyspark')}"
    )


def buffer_bytes(digest: str) -> int:
    """Returns a size of the buffer of a client's workers that depends on its code's digest.

    Spark gives a task to an idle worker whose environment variables are equal to the task's.
    The buffer's size is a variable that a client can set. So clients with different code
    get different workers. If two clients with different code get the same size by chance, a
    worker with the wrong code ends itself (`worker_bootstrap.Code`).
    """
    return _BUFFER_BYTES + int(digest[:8], 16) % _KINDS


def _client_address(address: str) -> str:
    """Returns the address for Spark's client.

    The client sends a token only by TLS, or to a server with the name localhost.

    Raises:
        SpecError: see `ConnectedSpark.__post_init__`.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None or int(parts["port"] or PORT) not in range(1, 65536):
        raise SpecError(
            "A Spark Connect server's address is sc://HOST:PORT, on another machine with"
            " ;use_ssl=true behind it, and this is none",
            "spec",
            f"Name it like sc://localhost:{PORT}. A token goes into the environment ({TOKEN}).",
        )
    local, tls = parts["host"] in LOOPBACK, parts["tls"] or ""
    if not local and not tls:
        raise SpecError(
            f"Tasks for {address} would travel in the clear, with the secrets of a pipeline's"
            " client",
            "spec",
            "Reach it by TLS, with ;use_ssl=true behind the address, or run a server on this"
            " machine.",
        )
    return (
        f"sc://{'localhost' if local and not tls else parts['host']}:{parts['port'] or PORT}/{tls}"
    )
