"""kcat, once for each job: it writes all messages of a topic to /dev/null, and ends.

python program.py BOOTSTRAP FOLDER      then a JSON job per line on stdin, an answer per line on
stdout

FOLDER is where its packages are unpacked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

END = re.compile(r"Reached end of topic \S+ \[\d+\] at offset (\d+)")


def main(bootstrap: str, folder: str) -> None:
    """Answers jobs until stdin ends."""
    libraries = ":".join({str(path.parent) for path in Path(folder).rglob("*.so.*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        # -C is a consumer without a group that is assigned all topic-partitions. -e ends it at
        # their ends. The longer queue is that of librdkafka's performance program. It was a
        # fifth faster here than the default.
        queue = ["-X", "queued.min.messages=1000000"]
        command = [
            f"{folder}/usr/bin/kcat",
            "-C",
            "-b",
            bootstrap,
            "-t",
            job["topic"],
            "-o",
            "beginning",
            "-e",
            *queue,
        ]
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
            timeout=300,
        )
        print(json.dumps({"rows": sum(map(int, END.findall(done.stderr)))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
