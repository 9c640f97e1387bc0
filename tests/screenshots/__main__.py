"""`make screenshots`: writes the pictures into docs/dagster and docs/airflow again."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

from tests.screenshots.pictures import DOCS, take_all

if __name__ == "__main__":
    # a shell's background job ignores Ctrl-C, and then Dagster would also ignore SIGTERM
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        picture_by_path = take_all(Path(folder))
    for path, data in picture_by_path.items():
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_bytes(data)
