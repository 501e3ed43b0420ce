"""What the tests of loading share: the toy format and a working folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.load.toy import toy  # noqa: F401  (a fixture)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
