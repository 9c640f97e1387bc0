"""The trigger that asks repeatedly whether a window is complete."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from windrow_airflow.process import (
    TOO_EARLY,
    UNREACHABLE,
    WRONG_SPEC,
    document_in,
    mask_secrets,
    unstartable,
    variables,
)


class WindrowCompleteTrigger(BaseTrigger):
    """Calls `windrow state` every `seconds`, until the window is complete or an error is final."""

    def __init__(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        kafka_conn_id: str | None,
        seconds: float,
    ) -> None:
        """Takes the words of the command, and arguments of `WindrowOperator`.

        The secrets of a connection aren't arguments, because Airflow stores a trigger's
        arguments in its database.
        """
        super().__init__()
        self.words, self.env = list(words), dict(env)
        self.kafka_conn_id, self.seconds = kafka_conn_id, seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns the class and its arguments."""
        names = ("words", "env", "kafka_conn_id", "seconds")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields one event: the exit code, and the document."""
        connection_env = dict[str, str]()
        if self.kafka_conn_id is not None:
            connection = await BaseHook.aget_connection(self.kafka_conn_id)
            connection_env = variables(connection.extra_dejson)
        code, error, added = TOO_EARLY, dict[str, Any](), {**connection_env, **self.env}
        while code in {TOO_EARLY, UNREACHABLE}:
            await asyncio.sleep(self.seconds)
            try:
                code, error = await self._ask(added)
            except OSError as failed:
                code, error = WRONG_SPEC, {"message": unstartable(self.words[0], failed)}
        # only the document's error, because Airflow stores events in its database
        yield TriggerEvent({"code": code, "document": {"error": error}})

    async def _ask(self, added: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Asks once, and copies the log to the task's log.

        Returns:
            The exit code, and the document's error.
        """
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self.words,
            "--json",
            env={**os.environ, **added},
            stdin=none,
            stdout=pipe,
            stderr=pipe,
        )
        try:
            out, log = await process.communicate()
        finally:
            if process.returncode is None:  # the task was cancelled meanwhile
                with suppress(ProcessLookupError):
                    process.kill()
        for line in log.decode(errors="replace").splitlines():
            self.log.info("%s", mask_secrets(line, added))
        document = document_in(out.decode(errors="replace"), added)
        return process.returncode or 0, document.get("error", {})
