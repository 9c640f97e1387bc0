"""The one fault of a case: it counts the I/O calls of a command, and makes one of them fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Literal

import msgspec

Channel = Literal["file", "kafka", "postgres", "http"]
"""The way of a call: the operating system's files, or a protocol of a server."""

Mode = Literal["error", "cut", "half", "lost", "stall", "full", "gone"]
"""The effect of a fault.

- `error`: the call is not done, and its caller gets an error: EIO, or HTTP 503.
- `cut`: the request is not done, and its connection is reset.
- `half`: the request is done, and its answer ends in the middle.
- `lost`: the call is done, and its caller gets an error.
- `stall`: the request is not done, and there is no answer until the command has said that it
  waits. Then the connection is reset.
- `full`: the file gets half of what is written to it, and the disk is full from then on.
- `gone`: the server resets each connection from then on.
"""

LASTING: Sequence[Mode] = ("full", "gone")
"""The modes that affect all later calls of the channel, too."""

LIMIT = 300.0
"""The timeout in seconds for a call that gets no answer."""


class Target(msgspec.Struct, frozen=True):
    """The call that fails.

    Attributes:
        channel: its channel.
        index: its index among the calls of the channel.
        mode: what happens to it.
    """

    channel: Channel
    index: int
    mode: Mode


class Injector:
    """Counts calls while it is armed, and says which of them fails.

    Attributes:
        calls: the names of the calls so far, by channel.
        hit: the name of the call that failed; empty if none did.
        hit_time: when it failed, by the monotonic clock.
        released: set when stalled calls may end.
    """

    def __init__(self) -> None:
        self.calls: dict[Channel, list[str]] = {}
        self.hit, self.hit_time = "", 0.0
        self.released = threading.Event()
        self._target: Target | None = None
        self._armed, self._lock = False, threading.Lock()

    def arm(self, target: Target | None = None) -> None:
        """Counts calls from now on, and makes one of them fail."""
        self._armed, self._target = True, target

    @property
    def stalls(self) -> bool:
        """Whether a call that gets no answer for a while was met."""
        return bool(self.hit) and self._target is not None and self._target.mode == "stall"

    def disarm(self) -> None:
        """Lets all calls pass from now on."""
        self._armed = False
        self.released.set()

    def meet(self, channel: Channel, name: str) -> Mode | None:
        """Counts a call. Returns what happens to it; None if it passes."""
        with self._lock:
            if not self._armed:
                return None
            calls, target = self.calls.setdefault(channel, []), self._target
            calls.append(name)
            index = len(calls) - 1
            if target is None or target.channel != channel:
                return None
            if index == target.index:
                self.hit, self.hit_time = name, time.monotonic()
                return target.mode
            return target.mode if index > target.index and target.mode in LASTING else None
