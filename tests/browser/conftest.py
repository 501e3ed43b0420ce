"""The fixtures of the browser tests."""

from __future__ import annotations

import pytest

from browser.chromium import Chromium, find_chromium


@pytest.fixture(scope="session")
def chromium() -> Chromium:
    return find_chromium()
