"""Options that `study` and `bench` share."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankscope.studies.builtin import STUDIES
from rankscope.studies.errors import BadStudy
from rankscope.studies.launchers import Wanted, kinds
from rankscope.studies.own import read_study
from rankscope.studies.plan import Study
from rankscope.studies.pythons import Pythons
from rankscope.studies.whole import Asked


def named(word: str) -> tuple[Study, dict[str, Any]]:
    """The built-in study of that name, or the one in that file."""
    if word in STUDIES:
        return STUDIES[word], {}
    if word.endswith(".toml"):
        study, launch = read_study(Path(word))
        return study, dict(launch)
    raise BadStudy(
        f"{word}: no such study; choose one of {', '.join(STUDIES)}, or give a file.toml (see docs/study.md)"
    )


def numbers(text: str) -> list[int]:
    found = [int(word) for word in text.split(",") if word]
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give whole numbers above 0, parted by commas")
    return found


def values(text: str) -> tuple[str, list[str]]:
    axis, equals, rest = text.partition("=")
    if not equals or not rest:
        raise argparse.ArgumentTypeError(f"{text}: give an axis and its values, as in backend=gloo,mpi4py")
    return axis, rest.split(",")


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("launching")
    group.add_argument(
        "--launcher",
        choices=kinds(),
        default="auto",
        help="auto (the default): that of the allocation, else what the workload needs on one machine",
    )
    group.add_argument(
        "--template", default="", metavar="WORDS", help="with {command}, {ranks}, {nodes} and {ppn} in it"
    )
    group.add_argument("--ppn", type=int, metavar="N", help="ranks on each node")
    group.add_argument("--launcher-args", default="", metavar="WORDS", help="further words for the launcher, in quotes")
    group.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PYTHON",
        help="where the workload's packages are; may be given several times, the first that has them is used",
    )
    group.add_argument("--timeout", type=float, metavar="S", help="of one cell")


def add_parameters(parser: argparse.ArgumentParser, study: Study) -> None:
    if study.parameters:
        group = parser.add_argument_group(f"of the study {study.name}")
        for name, one in study.parameters.items():
            shown = f"{one.help} (default: {one.default})" if one.default else one.help
            option = f"--{name.replace('_', '-')}"
            group.add_argument(
                option, dest=f"set_{name}", default=one.default, metavar="X", help=shown.replace("%", "%%")
            )


def asked(
    study: Study, launch: dict[str, Any], options: argparse.Namespace, scales: Sequence[int], repeats: int
) -> Asked:
    """What was asked for, with what the study's file says where the command line says nothing."""
    template = options.template or launch.get("template", "")
    launcher = options.launcher if options.launcher != "auto" else launch.get("launcher", "auto")
    wanted = Wanted(
        "template" if template and launcher == "auto" else launcher,
        options.ppn or launch.get("per_node"),
        tuple(shlex.split(options.launcher_args)) or tuple(map(str, launch.get("arguments", ()))),
        template,
    )
    settings = {name: getattr(options, f"set_{name}") for name in study.parameters}
    limit_s = options.timeout or study.timeout_s
    pythons = Pythons(options.python)
    return Asked(study, study.settled(settings, pythons), pythons, scales, repeats, wanted, dict(options.only), limit_s)
