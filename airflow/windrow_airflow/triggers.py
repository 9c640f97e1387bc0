"""The trigger that asks whether a window is complete, again and again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from windrow_airflow.process import TOO_EARLY, UNREACHABLE, document_in, masked, variables


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
        found = dict[str, str]()
        if self.kafka_conn_id is not None:
            connection = await BaseHook.aget_connection(self.kafka_conn_id)
            found = variables(connection.extra_dejson)
        code = TOO_EARLY
        while code in {TOO_EARLY, UNREACHABLE}:
            await asyncio.sleep(self.seconds)
            code, text = await self._ask({**os.environ, **found, **self.env})
        text = masked(text, {**found, **self.env})  # events are kept in Airflow's database
        yield TriggerEvent({"code": code, "document": document_in(text)})

    async def _ask(self, env: Mapping[str, str]) -> tuple[int, str]:
        pipe = asyncio.subprocess.PIPE
        asked = await asyncio.create_subprocess_exec(
            *self.words, "--json", env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe
        )
        try:
            out, _ = await asked.communicate()
        finally:
            if asked.returncode is None:  # the task was cancelled meanwhile
                with suppress(ProcessLookupError):
                    asked.kill()
        return asked.returncode or 0, out.decode(errors="replace")
