"""Calls of Ray and RPC give what they give without us, however a program writes them."""

from types import SimpleNamespace
from typing import Any

import pytest

from rankscope.agent import worker_calls


class Recorder:
    """Remembers what was told of calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, bytes | None]] = []

    def rankscope_ticks(self) -> int:
        return 1

    def rankscope_worker_call(self, name: bytes, worker: bytes | None, begin: int) -> None:
        self.calls.append((name, worker))


def ray_worker() -> Any:
    """Functions with the signatures of Ray's."""

    def get(object_refs: Any, *, timeout: float | None = None) -> Any:
        return ("got", object_refs, timeout)

    def wait(ray_waitables: Any, *, num_returns: int = 1) -> Any:
        return ("waited", ray_waitables, num_returns)

    return SimpleNamespace(get=get, wait=wait)


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("get", (["a"],), {}),
        ("get", (), {"object_refs": ["a"]}),
        ("get", (), {"timeout": 2, "object_refs": ["a"]}),
        ("wait", (["a"],), {"num_returns": 1}),
        ("wait", (), {"ray_waitables": ["a"]}),
    ],
)
def test_objects_are_given_by_place_or_by_name(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    recorder, worker = Recorder(), ray_worker()
    bare = getattr(ray_worker(), name)(*arguments, **named)
    worker_calls._watch_gets(recorder, worker)
    assert getattr(worker, name)(*arguments, **named) == bare
    assert len(recorder.calls) == 1


def test_an_error_of_the_program_is_its_own() -> None:
    recorder, worker = Recorder(), ray_worker()
    worker_calls._watch_gets(recorder, worker)
    with pytest.raises(TypeError, match="object_refs"):
        worker.get()


class Stubborn:
    """Answers every question with an error, as proxies of remote objects may."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_a_function_that_answers_with_errors_is_called_by_its_type() -> None:
    assert worker_calls.named(Stubborn()) == b"Stubborn"
