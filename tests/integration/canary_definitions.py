"""The code location of a pipeline whose spec a variable names, as Dagster's web server loads it."""

from __future__ import annotations

import os
from pathlib import Path

from windrow.assets.factory import kafka_table
from windrow.ingest.config.load import load_spec

defs = kafka_table(load_spec(Path(os.environ["CANARY_SPEC"])))
