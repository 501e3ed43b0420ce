"""Where a distributed training job spends its time.

In a program: `rankscope.step()` at the end of each step, `with rankscope.range("name"):` around a part of it. Both do
nothing where the program is not recorded.
"""

TYPE_CHECKING = False  # `rankscope run` has no time to import typing
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_recorder: "Any" = None
_looked = False


def _find_recorder() -> "Any":
    """The recorder in this process or None, looked for at the first use: `rankscope run` must not load ctypes."""
    global _recorder, _looked
    if not _looked:
        from rankscope.agent.native import recorder

        _recorder, _looked = recorder(), True
        if _recorder is not None:
            from rankscope.agent.garbage import watch_garbage

            watch_garbage(_recorder)
    return _recorder


def step() -> None:
    """Say that a step of the training loop ends here."""
    recorder = _recorder if _looked else _find_recorder()
    if recorder is not None:
        recorder.rankscope_step()


class range:
    """A named range: `with rankscope.range("name"):`. docs/steps.md has the names that are parts of a step."""

    __slots__ = ("_begin", "_name")

    def __init__(self, name: str) -> None:
        self._name = name.encode("utf-8", "replace")
        self._begin = 0

    def __enter__(self) -> "range":
        recorder = _recorder if _looked else _find_recorder()
        if recorder is not None:
            self._begin = recorder.rankscope_range_begin(self._name)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._begin:
            _recorder.rankscope_range_end(self._name, self._begin)
