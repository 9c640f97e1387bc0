"""The trigger that asks whether a window is complete, again and again."""

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
    """Runs `windrow state` every `seconds`, until the window is complete or that can't be told."""

    def __init__(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        kafka_conn_id: str | None,
        seconds: float,
    ) -> None:
        """Takes the words of the command, and what `WindrowOperator` takes.

        A connection's secrets aren't among them: Airflow keeps them in its database.
        """
        super().__init__()
        self.words, self.env = list(words), dict(env)
        self.kafka_conn_id, self.seconds = kafka_conn_id, seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class, and its arguments."""
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
        # the error alone: events are kept in Airflow's database
        yield TriggerEvent({"code": code, "document": {"error": error}})

    async def _ask(self, added: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Asks once, its log in the task's; returns the exit code, and the document's error."""
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
