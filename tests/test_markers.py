"""Generated text goes between its markers and nowhere else."""

from __future__ import annotations

import pytest

from tools.markers import MissingMarkers, between, filled

PAGE = "before\n<!-- help -->\nold\n<!-- /help -->\nafter\n"


def test_only_the_text_between_the_markers_changes() -> None:
    assert filled(PAGE, "help", "new") == "before\n<!-- help -->\nnew\n<!-- /help -->\nafter\n"


def test_filling_twice_is_filling_once() -> None:
    assert filled(filled(PAGE, "help", "new"), "help", "new") == filled(PAGE, "help", "new")


def test_what_was_filled_in_is_found_again() -> None:
    assert between(filled(PAGE, "help", "a\n\nb"), "help") == "a\n\nb"


@pytest.mark.parametrize("page", ["", "<!-- help -->\n", "<!-- /help -->\n<!-- help -->\n"])
def test_missing_markers_are_an_error(page: str) -> None:
    with pytest.raises(MissingMarkers):
        filled(page, "help", "new")
