"""librdkafka's own performance program, once for each job: it reads a topic and ends.

python program.py BOOTSTRAP PROGRAM      then a JSON job per line on stdin, an answer per line
on stdout

It prints its own seconds, from the first message to the last. The CPU seconds are those of the
whole process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

SAID = re.compile(r"% (\d+) messages \((\d+) bytes\) consumed in (\d+)ms")


def main(bootstrap: str, program: str) -> None:
    """Answers jobs until stdin ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        partitions = [
            word for partition in range(job["partitions"]) for word in ("-p", str(partition))
        ]
        # -C reads by callback from one queue for all topic-partitions. That was faster here
        # than -G, a consumer group, and than batches (-B). The program itself sets
        # queued.min.messages to 1,000,000. By default the queue is limited to 64 MB.
        command = [
            program,
            "-C",
            "-b",
            bootstrap,
            "-t",
            job["topic"],
            *partitions,
            "-o",
            "beginning",
            "-c",
            str(job["rows"]),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        figures = SAID.findall(done.stdout)
        print(
            json.dumps({"rows": int(figures[-1][0]), "seconds": int(figures[-1][2]) / 1000}),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
