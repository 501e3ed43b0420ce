"""One line for every check, and whether all held."""

from __future__ import annotations

from typing import Any


class Checks:
    def __init__(self) -> None:
        self.failed = self.passed = 0

    def say(self, mark: str, text: str) -> None:
        print(f"{mark:4} {text}")

    def that(self, holds: bool, text: str) -> None:
        self.say("ok" if holds else "BAD", text)
        self.failed += not holds
        self.passed += holds

    def equal(self, what: str, found: Any, wanted: Any) -> None:
        self.that(
            found == wanted, f"{what}: {found}" if found == wanted else f"{what}: {found} recorded, {wanted} done"
        )

    def near(self, what: str, found: float, wanted: float, share: float) -> None:
        ratio = found / wanted if wanted else float("inf")
        self.that(abs(ratio - 1) <= share, f"{what}: {found:.6g} recorded, {wanted:.6g} measured, ratio {ratio:.4f}")

    def under(self, what: str, found: float, most: float) -> None:
        self.that(found <= most, f"{what}: {found:.4g}, at most {most:g} is allowed")

    def note(self, text: str) -> None:
        self.say("", text)

    def skip(self, text: str) -> None:
        self.say("skip", text)

    def end(self) -> int:
        print(f"{self.passed} checks hold, {self.failed} do not")
        return 1 if self.failed or not self.passed else 0
