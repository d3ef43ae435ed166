"""Stopping on request.

The first SIGINT or SIGTERM is remembered, and whoever runs the loop stops after the present step. A SIGINT after that
raises KeyboardInterrupt at once, and one more ends the process.
"""

import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """Context in which signals are requests. Outside the main thread signals cannot be caught, and it does nothing."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, 0 without either."""
        return 0 if self.received is None else 128 + self.received

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received is not None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise KeyboardInterrupt
        self.received = self.received or signal.Signals(number)
