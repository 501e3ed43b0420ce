"""Where a distributed training job spends its time.

In a program: `rankscope.step()` at the end of each step, `with rankscope.range("name"):` around a part of it. Both do
nothing where the program is not recorded.
"""

__version__ = "0.1.0"

_recorder = ()  # not looked for yet; then the recorder in this process, or None


def _find_recorder():  # type: ignore[no-untyped-def]
    """Looked for at the first use: `rankscope run` itself must not load ctypes."""
    global _recorder
    from rankscope.agent.native import recorder

    _recorder = recorder()
    return _recorder


def step() -> None:
    """Say that a step of the training loop ends here."""
    recorder = _find_recorder() if _recorder == () else _recorder
    if recorder is not None:
        recorder.rankscope_step()


class range:
    """A named range: `with rankscope.range("name"):`. Names that are parts of a step: docs/steps.md."""

    __slots__ = ("_begin", "_name")

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._begin = 0

    def __enter__(self) -> "range":
        recorder = _find_recorder() if _recorder == () else _recorder
        if recorder is not None:
            self._begin = recorder.rankscope_range_begin(self._name)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._begin:
            _recorder.rankscope_range_end(self._name, self._begin)  # type: ignore[attr-defined]
