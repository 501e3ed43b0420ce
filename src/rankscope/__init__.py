"""Where a distributed training job spends its time.

After a run: `rankscope.open("runs/x")` gives its tables (docs/reference/api.md).
In a program: `rankscope.step()` at the end of each step, `with rankscope.range("name"):` around a part of it,
`with rankscope.checkpoint():` around what writes a checkpoint. All do nothing where the program is not recorded.
"""

TYPE_CHECKING = False  # `rankscope run` has no time to import typing
if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import Any

    from rankscope.api.compare import Compared
    from rankscope.api.frame import Frame as Frame
    from rankscope.api.run import Run as Run

__version__ = "0.1.0"
SCHEMA_VERSION = 3  # of docs/reference/schema.md: a column that goes or changes its meaning makes a new one

_recorder: "Any" = None
_looked = False


def _find_recorder() -> "Any":
    """The recorder in this process or None, looked for at the first use: `rankscope run` must not load ctypes."""
    global _recorder, _looked
    if not _looked:
        from rankscope.agent.recorder import recorder

        _recorder, _looked = recorder(), True
        if _recorder is not None:
            from rankscope.agent.recorder import watch_garbage

            watch_garbage(_recorder)
    return _recorder


def step() -> None:
    """Say that a step of the training loop ends here."""
    recorder = _recorder if _looked else _find_recorder()
    if recorder is not None:
        recorder.rankscope_step()


class range:
    """A named range: `with rankscope.range("name"):`. docs/reference/steps.md: names that are parts of a step."""

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


def checkpoint() -> "range":
    """`with rankscope.checkpoint():` around what writes a checkpoint that the job can go on from."""
    return range("checkpoint")


class recording:
    """Record a block of a process that was started without `rankscope run`: `with rankscope.recording() as folder:`.

    What the agent sees of torch is recorded: steps, ranges, collectives. All blocks of a process are one run.
    """

    __slots__ = ("_name", "_out")

    def __init__(self, out: str = "", *, name: str = "") -> None:
        self._out, self._name = out, name

    def __enter__(self) -> str:
        global _looked
        from rankscope.api.notebook import IN_PROCESS

        _looked = False  # there may be a recorder from now on
        return IN_PROCESS.begin(self._out, self._name)

    def __exit__(self, *raised: object) -> None:
        from rankscope.api.notebook import IN_PROCESS

        IN_PROCESS.pause()


def load_ipython_extension(shell: "Any") -> None:
    """`%load_ext rankscope` gives a notebook `%%rankscope`."""
    from rankscope.api.notebook import register

    register(shell)


def open(path: "str | PathLike[str] | None" = None, *, dask: "str | None" = None, keep: bool = True) -> "Run":
    """The run in that folder, by default the latest: `run.findings()`, `run.table("mpi")`, `run.query("select …")`.

    The rank files of a large run are read by the Dask scheduler at the address that is given, or "local"; its tables
    are kept in its folder unless `keep` is false.
    """
    from rankscope.api.run import Run

    return Run(path, dask=dask, keep=keep)


def compare(*sides: "str | PathLike[str]", equal: float = 0.02, fail_if: "Sequence[str]" = ()) -> "Compared":
    """What changed from the first side to each other; a side is a run or repeats of it: docs/commands/compare.md."""
    from rankscope.api.compare import CompareOptions, compared

    return compared(sides, CompareOptions(equal=equal), fail_if)


_ELSEWHERE = {"Frame": "frame", "Run": "run", "NoRun": "run", "BadQuery": "run", "Wrong": "run"}


def __getattr__(name: str) -> "Any":
    """Types and errors of the API, loaded at their first use."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'rankscope' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"rankscope.api.{_ELSEWHERE[name]}"), name)
