"""A stub of `windrow` that needs only the standard library.

It answers each call with the next entry of answers.json in the spec's folder, and records the
call.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def wait_for_the_end(calls: Path) -> None:
    """Kills the task that started this process, and records that it is interrupted.

    The record is late, because a real clean-up takes time. A caller that doesn't wait for it
    makes its next call too early.
    """

    def interrupted(*_: object) -> None:
        time.sleep(1)
        with calls.open("a") as file:
            file.write(json.dumps({"words": ["interrupted"]}) + "\n")
        sys.exit(130)

    signal.signal(signal.SIGINT, interrupted)
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)


def main() -> int:
    folder = Path(sys.argv[2]).parent
    calls = folder / "calls.jsonl"
    call_count = calls.read_text().count("\n") if calls.exists() else 0
    kafka = {name: value for name, value in os.environ.items() if name.startswith("KAFKA_")}
    with calls.open("a") as file:
        file.write(json.dumps({"words": sys.argv[1:], "kafka": kafka}) + "\n")
    replies = json.loads((folder / "answers.json").read_text())
    reply = replies[min(call_count, len(replies) - 1)]
    for line in reply.get("says", []):
        print(line.format(**kafka), file=sys.stderr, flush=True)
    if reply.get("killed"):
        wait_for_the_end(calls)
    time.sleep(reply.get("takes", 0))
    print(json.dumps(reply["document"]))
    return reply.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
