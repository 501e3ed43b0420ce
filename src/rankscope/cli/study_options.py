"""Options that `study` and `bench` share."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rankscope.studies.builtin import STUDIES
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.launchers import LaunchOptions, kinds
from rankscope.studies.plan import Study
from rankscope.studies.request import StudyRequest
from rankscope.studies.toml_study import read_study


def named(word: str) -> tuple[Study, dict[str, Any]]:
    """The built-in study of that name, or the one in that file."""
    if word in STUDIES:
        return STUDIES[word], {}
    if word.endswith(".toml"):
        study, launch = read_study(Path(word))
        return study, dict(launch)
    raise BadStudy(
        f"{word}: no such study; choose one of {', '.join(STUDIES)}, or give a file.toml (see docs/commands/study.md)"
    )


def parsed(argv: Sequence[str], arguments: argparse.ArgumentParser) -> tuple[argparse.Namespace, Study, dict[str, Any]]:
    """The options, those of the study among them, which must be known before they are read."""
    flags = {word for action in arguments._actions if action.nargs == 0 for word in action.option_strings}
    before = ["", *argv]
    words = [
        word
        for word, previous in zip(argv, before, strict=False)
        if (word in STUDIES or word.endswith(".toml"))
        and (not previous.startswith("--") or "=" in previous or previous in flags)
    ]
    study, launch = named(words[0]) if words else (None, {})
    if study:
        add_parameters(arguments, study)
    options = arguments.parse_args(argv)
    if study is None or options.study != words[0]:
        study, launch = named(options.study)
    return options, study, launch


def numbers(text: str) -> list[int]:
    try:
        counts = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give whole numbers above 0, separated by commas")
    return counts


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give seconds, more than 0")
    return value


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
        metavar="LAUNCHER",
        help="auto (the default: that of the allocation, else one that the workload runs with on this machine), "
        + ", ".join(one for one in kinds() if one != "auto"),
    )
    group.add_argument(
        "--template",
        default="",
        metavar="WORDS",
        help="launch command that contains {command}, {ranks}, {nodes} and {ppn}",
    )
    group.add_argument("--ppn", type=count, metavar="N", help="ranks on each node")
    group.add_argument(
        "--launcher-args",
        default="",
        metavar="WORDS",
        help="further arguments for the launcher, as in --launcher-args='--time=10 --exclusive'",
    )
    group.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PYTHON",
        help="a Python that has the workload's packages; may be repeated: the first that has them is used",
    )
    group.add_argument(
        "--timeout", type=seconds, metavar="S", help="time limit of one cell, in seconds (default: the study's own)"
    )


def add_parameters(parser: argparse.ArgumentParser, study: Study) -> None:
    if study.parameters:
        group = parser.add_argument_group(f"options of the study {study.name}")
        for name, parameter in study.parameters.items():
            shown = f"{parameter.help} (default: {parameter.default})" if parameter.default else parameter.help
            option = f"--{name.replace('_', '-')}"
            group.add_argument(option, dest=f"set_{name}", metavar="X", help=shown.replace("%", "%%"))


def study_request(
    study: Study,
    launch: Mapping[str, Any],
    options: argparse.Namespace,
    scales: Sequence[int],
    repeats: int,
    before: Mapping[str, Any] = MappingProxyType({}),
) -> StudyRequest:
    """What was asked for: on the command line, else when the study was begun, else in its file."""
    earlier = before.get("asked", {})
    identity = before.get("identity", {})
    template = options.template or earlier.get("template") or launch.get("template", "")
    launcher = options.launcher or identity.get("launcher") or launch.get("launcher", "auto")
    more = shlex.split(options.launcher_args) or earlier.get("more") or launch.get("arguments", ())
    wanted = LaunchOptions(
        "template" if template and launcher == "auto" else launcher,
        options.ppn or earlier.get("per_node") or launch.get("per_node"),
        tuple(map(str, more)),
        template,
    )
    settings = {
        name: chosen(options, identity, name, parameter.default) for name, parameter in study.parameters.items()
    }
    pythons = Pythons(options.python or earlier.get("pythons", []), getattr(options, "assume", ()))
    limit_s = options.timeout or earlier.get("timeout_s") or study.timeout_s
    only = dict(options.only) or earlier.get("only", {})
    return StudyRequest(study, study.settled(settings, pythons), pythons, scales, repeats, wanted, only, limit_s)


def chosen(options: argparse.Namespace, identity: Mapping[str, Any], name: str, default: str) -> str:
    given = getattr(options, f"set_{name}", None)
    return str(given if given is not None else identity.get("settings", {}).get(name, default))
