"""Builds with each sanitizer in turn."""

from __future__ import annotations

import pytest

from native.builds import SANITIZERS, compiler_has


@pytest.fixture(scope="session", params=list(SANITIZERS))
def sanitizer(request: pytest.FixtureRequest) -> str:
    """What the recorder, the fakes and the drivers of a test are compiled with: nothing, or one of the sanitizers."""
    if not compiler_has(request.param):
        pytest.skip(f"the C compiler has no {request.param} sanitizer")
    return str(request.param)
