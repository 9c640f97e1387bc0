"""Where the demo keeps its things, and the environment in which Dagster and the command find them.

    ROOT/.env                      the four variables below; other lines in it are left alone
    ROOT/dagster_home              Dagster's history
    ROOT/.windrow/demo/kafka       the broker
    ROOT/.windrow/demo/lake        the tables
    ROOT/.windrow/demo/state.db    the ledger
    ROOT/.windrow/demo/manifest.parquet   which orders were produced
    ROOT/.windrow/demo/customers.parquet  which changes of customers
    ROOT/.windrow/demo/run.log     what Spark and Dagster said
    ROOT/.windrow/demo/spark       the cluster, or the server, if tasks run on one
    ROOT/.windrow/demo/ui.json     which process the UI is
    ROOT/.windrow/demo/tmp         the UI's temporary files, while it runs

Broker, tables, ledger and manifest live and die together: without the manifests the
demo begins anew.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from dotenv import dotenv_values

from windrow.ingest.model.label import instant

PROJECT = Path(__file__).resolve().parents[2]
OURS = {"DAGSTER_HOME", "WINDROW_HOME", "WINDROW_BOOTSTRAP", "ORDERS_START"}
"""The demo's variables in .env."""

SparkPlace = Literal["cluster", "connect"]
"""Where the demo's tasks run, if not in a Spark of its own."""

SETTLE = timedelta(minutes=2)
"""The last window ends at least this long ago, so that it is closed (its delay is a minute)."""


@dataclass(frozen=True)
class DemoHome:
    """A root folder; normally the project's own."""

    root: Path

    @property
    def demo(self) -> Path:
        """What can be thrown away as a whole."""
        return self.root / ".windrow" / "demo"

    @property
    def kafka(self) -> Path:
        """The broker's folder."""
        return self.demo / "kafka"

    @property
    def spark(self) -> Path:
        """The Spark that isn't the demo's own: what it writes, and its logs."""
        return self.demo / "spark"

    @property
    def manifest(self) -> Path:
        """What was produced; there only if everything was."""
        return self.demo / "manifest.parquet"

    @property
    def customers(self) -> Path:
        """What was produced of customers' changes; there before the manifest."""
        return self.demo / "customers.parquet"

    @property
    def ui_file(self) -> Path:
        """Which process the UI is."""
        return self.demo / "ui.json"

    @property
    def ui_tmp(self) -> Path:
        """The UI's temporary files."""
        return self.demo / "tmp"

    @property
    def log(self) -> Path:
        """What Spark and Dagster said."""
        return self.demo / "run.log"

    @property
    def dagster_home(self) -> Path:
        """DAGSTER_HOME."""
        return self.root / "dagster_home"

    @property
    def env_file(self) -> Path:
        """Read by Dagster and by the command."""
        return self.root / ".env"

    def is_set_up(self) -> bool:
        """Whether the topics are there, whole, and the environment says which day it holds."""
        return (
            self.manifest.exists() and self.customers.exists() and "ORDERS_START" in self._written()
        )

    def _written(self) -> dict[str, str | None]:
        return dict(dotenv_values(self.env_file)) if self.env_file.exists() else {}

    def clear(self) -> None:
        """Throw away what an interrupted set-up left."""
        shutil.rmtree(self.demo, ignore_errors=True)
        self.demo.mkdir(parents=True)
        self.dagster_home.mkdir(exist_ok=True)
        settings = self.dagster_home / "dagster.yaml"
        if not settings.exists():
            shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", settings)

    def write_env(self, bootstrap: str, start: datetime) -> None:
        """Put the demo's variables into .env, whole or not at all."""
        ours = {
            "DAGSTER_HOME": str(self.dagster_home),
            "WINDROW_HOME": str(self.demo.parent),
            "WINDROW_BOOTSTRAP": bootstrap,
            "ORDERS_START": instant(start),
        }
        assert ours.keys() == OURS
        lines = [*self._kept(), *(f"{k}='{v}'" for k, v in ours.items())]
        part = self.env_file.with_suffix(".part")
        part.write_text("\n".join(lines) + "\n")
        part.replace(self.env_file)

    def forget(self) -> None:
        """Take the demo's variables out of .env, and the file away if it held nothing else."""
        kept = self._kept()
        if kept:
            self.env_file.write_text("\n".join(kept) + "\n")
        else:
            self.env_file.unlink(missing_ok=True)

    def _kept(self) -> list[str]:
        """The lines of .env that are not the demo's."""
        lines = self.env_file.read_text().splitlines() if self.env_file.exists() else []
        return [line for line in lines if line.partition("=")[0].strip() not in OURS]

    def start(self) -> datetime:
        """When the demo's day begins."""
        return datetime.fromisoformat(str(self._written()["ORDERS_START"]))

    def enter(self) -> None:
        """Make .env this process's environment: what the demo wrote wins over what the
        shell has.
        """
        os.environ.update(
            {name: value for name, value in self._written().items() if value is not None}
        )


def last_full_day(now: datetime) -> datetime:
    """The start of the last 24 full hours that are closed for good."""
    return (now.astimezone(UTC) - SETTLE).replace(minute=0, second=0, microsecond=0) - timedelta(
        hours=24
    )
