"""Single keys from the terminal, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType


class Keys:
    """Listens to the keyboard without a need for Enter; Ctrl-C stays what it is."""

    def __enter__(self) -> Keys:
        self._saved = None
        if sys.stdin is not None and sys.stdin.isatty():
            self._saved = termios.tcgetattr(sys.stdin.fileno())
            tty.setcbreak(sys.stdin.fileno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saved is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved)

    def pressed(self, seconds: float, wanted: str) -> bool:
        """Waits so long, or until one of these keys is pressed."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._saved is None:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                typed = os.read(sys.stdin.fileno(), 64)
                if not typed or set(typed.decode("latin-1")) & set(wanted):
                    return True
        return False
