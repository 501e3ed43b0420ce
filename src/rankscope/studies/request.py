"""What a user asked of a study: kept in its folder, so that going on with it needs no word of it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope.studies.interpreters import Pythons
from rankscope.studies.launchers import LaunchOptions
from rankscope.studies.plan import Cell, Settings, Study, cells


@dataclass
class StudyRequest:
    study: Study
    settings: Settings
    pythons: Pythons
    scales: Sequence[int]
    repeats: int
    wanted: LaunchOptions = field(default_factory=LaunchOptions)
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timeout_s: float = 600.0
    retry: bool = False

    def cells(self) -> list[Cell]:
        return cells(self.study, self.settings, self.scales, self.repeats, self.only)

    def identity(self) -> dict[str, Any]:
        """What must be the same for cells of two starts to belong together."""
        return {
            "study": self.study.name,
            "settings": dict(self.settings),
            "launcher": self.wanted.launcher,
            "definition": self.study.definition,
        }

    def described(self) -> dict[str, Any]:
        """For the study's folder."""
        return {
            "identity": self.identity(),
            "title": self.study.title,
            "scales": list(self.scales),
            "repeats": self.repeats,
            "cells": [cell.name for cell in self.cells()],
            "asked": {
                "only": {axis: list(values) for axis, values in self.only.items()},
                "timeout_s": self.timeout_s,
                "pythons": self.pythons.lasting_paths(),
                "per_node": self.wanted.per_node,
                "more": list(self.wanted.more),
                "template": self.wanted.template,
            },
        }


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not the same in two identities."""
    differences = []
    for name in ("study", "launcher", "definition"):
        if before.get(name, "") != now[name]:
            differences.append("its file's [workload] or [launch]" if name == "definition" else name)
    old, new = before.get("settings", {}), now["settings"]
    differences += [f"--{name.replace('_', '-')}" for name in {**old, **new} if old.get(name) != new.get(name)]
    return differences
