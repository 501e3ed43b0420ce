"""What a printed number can have been, and choices that make sums hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankscope.formats.printed import Span, added, printed, settled


def test_bounds_by_hand() -> None:
    assert printed("1.5", 1000) == Span(1451, 1500, 1549)
    assert printed("0.000", 10**9) == Span(0, 0, 499_999)
    assert printed("14.5", 1, 2) == Span(29, 29, 29)  # 28.9 to 29.1: only one whole number
    assert printed("490.2", 1, 4) == Span(1961, 1961, 1961)  # 1960.6 to 1961.0


def test_both_at_once() -> None:
    """14.675 s and 14.67 s of the same thing: just below 14.675."""
    both = printed("14.675", 10**9).narrowed(printed("14.67", 10**9))
    assert both is not None and both.at == 14_674_999_999
    assert printed("1.000", 10**9).narrowed(printed("1.02", 10**9)) is None
    assert printed("50.33", 1000).narrowed(Span(50325, 50325, 50325)) == Span(50325, 50325, 50325)  # a half


def test_parts_move_as_little_as_they_must() -> None:
    parts = [printed(text, 1000) for text in ("1.0", "2.0", "3.0")]
    assert settled(parts, printed("6.0", 1000)) == [1000, 2000, 3000]
    assert settled(parts, Span(6060, 6060, 6060)) == [1000, 2011, 3049]
    assert settled(parts, Span(5900, 5900, 5900)) == [998, 1951, 2951]
    assert settled(parts, Span(7000, 7000, 7000)) is None


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=30))
def test_the_truth_is_never_excluded(values: list[int]) -> None:
    """Numbers and their sum, printed in milliseconds: a choice exists, adds up, and prints the same."""
    parts = [printed(f"{value / 10**9:.3f}", 10**9) for value in values]
    total = printed(f"{sum(values) / 10**9:.3f}", 10**9)
    assert added(parts).meets(total)
    chosen = settled(parts, Span(total.low - 1, total.at, total.high + 1))
    assert chosen is not None
    assert [f"{one / 10**9:.3f}" for one in chosen] == [f"{part.at / 10**9:.3f}" for part in parts]
