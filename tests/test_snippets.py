"""Every command that the docs show can be typed: it is run, or says why not and is parsed as the command would."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.cli import COMMANDS
from rankscope.record import options as run_options
from rankscope.record.options import UsageError
from rankscope.studies.errors import BadStudy
from snippet_folder import IN_A_CHECKOUT, OFFLINE, dask_nodes, write_folder
from snippet_folder import PAGES as OF_ONE_PAGE
from tutorial_output import environment

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = {"text", "python", "json", "toml", "yaml", "dockerfile", "lua", "mermaid", "csv"}  # not typed
COMMAND = re.compile(r"^\$ (.*(?:\n> .*)*)", re.MULTILINE)
INDENTED = re.compile(r"^ {4}(?:\$ )?(?:rankscope|mpirun|srun|torchrun|make|pip) .*", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]*\brankscope [a-z][^`\n]*)`")
WITHOUT = re.compile(r"without (\.envs/\w+)")
INCOMPLETE = re.compile("required|expected one argument|no command given|needs a value|give (one run|the folder)")
LONGEST_S = 400
SERVES = re.compile(r"http://127\.0\.0\.1:\d+/")  # printed by what then goes on until Ctrl-C
# Places of other machines that pages speak of: an environment of ours, or an empty folder.
ELSEWHERE = {"/opt/env": "openmpi", "/mnt/copy": "openmpi", "/mnt/slow": "", "/soft/env": "torch", "/lustre/me": ""}
NODE = "node17"  # another machine: this one, by that name
# A root in which they exist, without touching the machine: $1 is its folder, then pairs of place and source.
OWN_ROOT = r"""
set -e
root=$1; shift
mount -t tmpfs none "$root"
for place in /*; do
    if [ -L "$place" ]; then cp -P "$place" "$root$place"
    elif [ "$place" != /opt ] && [ "$place" != /mnt ] && [ -d "$place" ]; then
        mkdir -p "$root$place" && mount --rbind "$place" "$root$place"
    fi
done
{ cat /etc/hosts; echo 127.0.0.1 node17; } > "$root/hosts"
mount --bind "$root/hosts" "$root/etc/hosts"
while [ $# -gt 0 ]; do
    mkdir -p "$root$1"
    if [ -n "$2" ]; then mount --bind "$2" "$root$1"; fi
    shift 2
done
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Snippet:
    """One command of a page, and why it is not run here, if it is not."""

    page: Path
    command: str
    not_run: str

    def words(self) -> list[str]:
        return shlex.split(self.command.replace("\n> ", "\n"), comments=True)


def snippets(page: Path, anywhere: bool = False) -> list[Snippet]:
    """The commands of a page; with `anywhere` as on a machine that has every environment that make can set up."""
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    return [
        Snippet(page, command, reason if applies(reason, command, text) and not has_it(reason, anywhere) else "")
        for reason, language, text in blocks
        if language == "console"
        for command in COMMAND.findall(text)
    ]


def applies(reason: str, command: str, block: str) -> bool:
    """A reason that begins with one of the block's commands is about that one alone."""
    about = reason.partition(",")[0]
    return not reason or command.startswith(about) or f"\n$ {about}" not in f"\n{block}"


def has_it(reason: str, anywhere: bool) -> bool:
    """Whether the environment is there, or can be made, without which a command is not run."""
    needed = WITHOUT.match(reason)
    return bool(needed) and (anywhere or (ROOT / needed[1] / ".ready").exists())


def ours(words: list[str]) -> list[list[str]]:
    """The command lines of rankscope itself within one of the shell, also behind a launcher."""
    found: list[list[str]] = []
    for word in words:
        if word in (";", "&&", "||", "|", "&", "done") or word.startswith(("2>", ">")):
            found.append([])
        elif word == "rankscope":
            found.append([word])
        elif found and found[-1]:
            found[-1].append(word.rstrip(";"))
    return [line[1:] for line in found if len(line) > 1 and line[1] in COMMANDS]


def parse(line: list[str]) -> None:
    """As the command does before it does anything; whoever cannot be followed raises."""
    name, rest = line[0], line[1:]
    if name == "run":
        run_options.parse(rest)
    elif name in ("study", "bench"):
        if "--list" not in rest and not any(word.endswith(".toml") for word in rest):
            module = importlib.import_module(f"rankscope.cli.{name}")
            importlib.import_module("rankscope.cli.study_options").parsed(rest, module.parser())
    elif name == "slowfs":
        importlib.import_module("rankscope.cli.slowfs").parsed(rest)
    elif name in ("gather", "index"):
        importlib.import_module(f"rankscope.cli.{name}").parse(rest)
    elif name == "stage":
        importlib.import_module("rankscope.stage.options").parse(rest)
    elif name == "doctor":
        assert {word for word in rest if word.startswith("--")} <= {"--python", "--out", "--prepare"}
    else:
        part = rest[0] if name == "imports" and rest[:1] in (["project"], ["replay"]) else ""
        module = importlib.import_module(f"rankscope.cli.{name}{'_' if part else ''}{part}")
        module.parser().parse_args(rest[bool(part) : rest.index("--") if "--" in rest else None])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_are_marked_as_such(page: Path) -> None:
    """So that none escapes the tests below: in a `console` block behind `$`, and no code without a language."""
    text = page.read_text(encoding="utf-8")
    blocks = FENCE.findall(text)
    assert {language for _, language, _ in blocks} <= SHOWN | {"console"}
    assert [block for _, language, block in blocks if language == "console" and not block.startswith("$ ")] == []
    assert INDENTED.findall(FENCE.sub("", text)) == []
    for _, language, block in blocks:
        if language == "python":
            compile(block, page.name, "exec")
        elif language == "json":
            json.loads(block)


def complaint(line: list[str]) -> str:
    """What the command says to this line, if it cannot follow it."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            parse(line)
    except (UsageError, BadStudy) as problem:
        return str(problem)
    except SystemExit as end:
        return told.getvalue().strip() if end.code else ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_our_commands_can_be_parsed(page: Path) -> None:
    lines = [line for snippet in snippets(page) for line in ours(snippet.words())]
    assert {" ".join(line): found for line in lines if (found := complaint(line))} == {}
    spans = INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))  # they may leave out what is needed
    lines = [line for span in spans if "…" not in span for line in ours(shlex.split(span))]
    found = {" ".join(line): complaint(line) for line in lines}
    assert {line: text for line, text in found.items() if text and not INCOMPLETE.search(text)} == {}


def test_a_wrong_command_is_noticed() -> None:
    assert ours(shlex.split("mpirun -n 2 rankscope run --out a python x.py; rankscope hang b")) == [
        ["run", "--out", "a", "python", "x.py"],
        ["hang", "b"],
    ]
    for wrong in (["report", "--tabel", "steps"], ["run", "--outt", "x", "true"], ["study", "no-such-study"]):
        assert complaint(wrong) and not INCOMPLETE.search(complaint(wrong))


def test_few_commands_are_not_run() -> None:
    """Those that need a GPU, a cluster, another machine, root, the network, packages that no test installs, or a server
    of somebody else, as `rankscope publish` does: tests/output/publish has those."""
    every = [snippet for page in PAGES for snippet in snippets(page, anywhere=True)]
    left = [f"{snippet.command}: {snippet.not_run}" for snippet in every if snippet.not_run]
    assert len(every) > 130 and len(left) <= 42, left


# ---------------------------------------------------------------------------------------------------------------------
# Commands are typed in a folder that holds what the pages' examples speak of.
@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("openmpi", "torch"):
        if not (ROOT / ".envs" / name / "bin" / "python").exists():
            pytest.skip(f"{name} is missing: run make envs")
    folder = tmp_path_factory.mktemp("snippets")
    write_folder(folder)
    return folder


@pytest.fixture
def elsewhere(bench: Path, tmp_path: Path) -> Iterator[list[str]]:
    """What to put before a command so that it finds the places of other machines."""
    root = tmp_path / "root"
    root.mkdir()
    there = {place: str(ROOT / ".envs" / name) if name else "" for place, name in ELSEWHERE.items()}
    words = [word for pair in there.items() for word in pair]
    holder = subprocess.Popen(
        ["unshare", "-rm", "bash", "-c", OWN_ROOT, "bash", root, *words], stdout=subprocess.PIPE, text=True
    )
    try:
        if holder.stdout is None or holder.stdout.readline() != "ready\n":
            pytest.skip("no user namespace can be had here")
        yield ["nsenter", "-t", str(holder.pid), "-U", "-m", "--preserve-credentials", "chroot", str(root)]
    finally:
        holder.kill()
        holder.communicate()


COMMENT = re.compile(r"\s#\s.*")


def places(command: str) -> dict[str, str]:
    """The environment in which `python` has what the command needs, and nothing is left in the user's own folders."""
    found = environment()
    command = COMMENT.sub("", command)
    if re.search("torchrun|train_ddp.py|imports? torch|bench (startup|ddp|training)", command):
        found["PATH"] = f"{ROOT / '.envs' / 'torch' / 'bin'}{os.pathsep}{found['PATH']}"
    for name, words in {"jax": "train_jax", "frameworks": "train_ray"}.items():
        if words in command:
            found["PATH"] = f"{ROOT / '.envs' / name / 'bin'}{os.pathsep}{found['PATH']}"
    return {**found, **OFFLINE, "OMP_NUM_THREADS": "1", "PAGER": "cat", "NODES": "1"}


def typed(page: Path) -> list[Snippet]:
    """What is run of a page here; the tour is run and compared by test_tutorial.py."""
    return [one for one in snippets(page) if not one.not_run and page.name != "tutorial.md"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if typed(page)], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_commands_run(page: Path, bench: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Without a mistake in their use and without a traceback."""
    folder = tmp_path / "here"
    shutil.copytree(bench, folder, symlinks=True)
    OF_ONE_PAGE.get(page.relative_to(ROOT).as_posix(), lambda _: None)(folder)
    commands = [snippet.command.replace("\n> ", "\n") for snippet in typed(page)]
    before: list[str] = []
    with contextlib.ExitStack() as beside:
        if any(place in command for command in commands for place in (*ELSEWHERE, NODE)):
            before = request.getfixturevalue("elsewhere")
            for command in RECORDED_ELSEWHERE.get(page.name, ()):
                done = started(command, before, folder)
                assert done.returncode == 0, f"{command}: {done.stderr}"
        for command in commands:
            if NODE in command:
                with dask_nodes(folder, before):
                    check(command, started(command, before, folder))
            elif command.endswith("&"):
                beside.enter_context(in_the_background(command, before, folder))
            else:
                check(command, started(command, before, folder))


def check(command: str, done: subprocess.CompletedProcess[str]) -> None:
    # 1 to 3 without a word of ours: something was found, or a limit of `compare` cannot be judged
    refused = done.returncode and re.search("^rankscope", done.stderr, re.MULTILINE)
    assert done.returncode in (0, 1, 2, 3) and not refused, f"{command}: {done.returncode}: {done.stderr}"
    assert done.returncode == 0 or not IN_A_CHECKOUT.match(command), f"{command}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, f"{command}: {done.stderr}"


@contextlib.contextmanager
def in_the_background(command: str, before: list[str], folder: Path) -> Iterator[None]:
    """Until the page's end; a scheduler's file is waited for, as a reader of the page would."""
    shell = [*before, "bash", "-c", f"cd {shlex.quote(str(folder))} && exec {command.rstrip(' &')}"]
    with subprocess.Popen(shell, env=places(command), start_new_session=True, stderr=subprocess.DEVNULL) as process:
        try:
            for file in re.findall(r"dask scheduler --scheduler-file (\S+)", command):
                until = time.monotonic() + LONGEST_S
                while not (folder / file).exists() and process.poll() is None and time.monotonic() < until:
                    time.sleep(0.1)
                assert (folder / file).exists(), command
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)


# What pages about other machines begin with.
RECORDED_ELSEWHERE = {
    "imports-replay.md": (
        "rm -r RUN; mpirun -n 2 rankscope run --imports paths --out RUN /opt/env/bin/python train.py",
        "strace -f -o strace.log /opt/env/bin/python -c 'import numpy'",
        "rankscope imports replay RUN --folder /opt/env --export ops.txt",
    ),
    "stage.md": (
        "rankscope stage /opt/env --bundle small.bundle --record -- python -c 'import numpy'",
        "rankscope stage /opt/env --bundle small.bundle --compare --times times-1 -- python -c 'import numpy'",
        "cp -r times-1 times-16",
    ),
}


def started(command: str, before: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Typed in the folder; what serves until Ctrl-C gets one as soon as it says where."""
    here = folder / "checkout" if IN_A_CHECKOUT.match(command) else folder
    shell = [*before, "bash", "-c", f"cd {shlex.quote(str(here))} && {command}"]
    own = {**places(command), "XDG_CACHE_HOME": str(folder / "cache"), "RANKSCOPE_STAGE_TO": str(folder)}
    if (folder / "installed").exists() and command.startswith("pip "):
        own["PATH"] = f"{folder / 'installed' / 'bin'}{os.pathsep}{own['PATH']}"
    if "rankscope serve" in command:
        return served(shell, own)
    return ended(shell, own)


def ended(shell: list[str], own: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Nothing of a command that takes too long goes on beside the others."""
    pipe = subprocess.PIPE
    with subprocess.Popen(shell, env=own, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            out, errors = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(shell, process.returncode, out, errors)


def served(shell: list[str], own: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        shell, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        assert server.stdout and SERVES.match(server.stdout.readline())
        os.killpg(server.pid, signal.SIGINT)
        out, errors = server.communicate(timeout=LONGEST_S)
    return subprocess.CompletedProcess(shell, server.returncode, out, errors)
