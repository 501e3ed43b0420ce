"""Every command that the docs show can be typed: it is run, or says why not and is parsed as the command would."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fuzz.seeds import collected
from mpis import ROOT
from rankscope.cli import COMMANDS
from rankscope.record import options as run_options
from rankscope.record.options import UsageError
from rankscope.studies.errors import BadStudy
from tutorial_output import FILE, environment

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^(?:<!-- (not run: [^\n]+) -->\n)?```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = {"text", "python", "json", "toml", "yaml", "dockerfile", "lua", "mermaid", "csv"}  # not typed
COMMAND = re.compile(r"^\$ (.*(?:\n> .*)*)", re.MULTILINE)
INDENTED = re.compile(r"^ {4}(?:\$ )?(?:rankscope|mpirun|srun|torchrun|make|pip) .*", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]*\brankscope [a-z][^`\n]*)`")
INCOMPLETE = re.compile("required|expected one argument|no command given|needs a value|give (one run|the folder)")
LONGEST_S = 300
SERVES = re.compile(r"http://127\.0\.0\.1:\d+/")  # printed by what then goes on until Ctrl-C
# Places of other machines that pages speak of: an environment of ours, or an empty folder.
ELSEWHERE = {"/opt/env": "openmpi", "/mnt/copy": "openmpi", "/mnt/slow": "", "/soft/env": "torch", "/lustre/me": ""}
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


def snippets(page: Path) -> list[Snippet]:
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    return [
        Snippet(page, command, reason)
        for reason, language, text in blocks
        if language == "console"
        for command in COMMAND.findall(text)
    ]


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


# ---------------------------------------------------------------------------------------------------------------------
# What the pages' examples speak of: a program for each launcher, runs under their names, files of other tools.
TRAIN_DDP = """
import os
import torch
from torch import nn
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
os._exit(0)  # torch itself aborts now and then in its destructors
"""
MEASURED = """
| nodes | soft-CCL (s) | TMP (s) |
|---|---|---|
| 1 | 2.0 | 5.0 |
| 2 | 4.1 | 5.1 |
| 4 | 8.2 | 5.2 |
| 8 | 16.1 | 5.1 |
"""
DOCUMENT = """
| nodes | soft-CCL (s) | lus-CCL (s) | Total TMP- CCL (s) |
|---|---|---|---|
| 1 | 2.0 | 2.0 | 5.0 |
| 2 | 4.1 | 2.1 | 5.1 |
| 4 | 8.2 | 2.1 | 5.2 |
| 8 | 16.1 | 2.3 | 5.1 |
"""
TWO_BRANCHES = """
git init -q -b main && git config user.name tests && git config user.email tests@example.org
git add train.py && git commit -qm 'train' && git branch faster && git checkout -q faster
sed -i 's/else 0.010/else 0.009/' train.py && git commit -qam 'faster' && git checkout -q main
"""
FILES = {"nvprof.log": "nvprof", "mpi_profile.1.0": "mpitrace", "darshan.txt.gz": "darshan", "rank0.log": "nvprof"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("openmpi", "torch"):
        if not (ROOT / ".envs" / name / "bin" / "python").exists():
            pytest.skip(f"{name} is missing: run make envs")
    folder = tmp_path_factory.mktemp("snippets")
    program = dict(FILE.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")))["train.py"]
    (folder / "train.py").write_text(program, encoding="utf-8")
    (folder / "train_ddp.py").write_text(TRAIN_DDP, encoding="utf-8")
    (folder / "measured.md").write_text(MEASURED, encoding="utf-8")
    for name, known in FILES.items():
        data = next(seed.data for seed in collected() if seed.format == known)
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (folder / "traces").mkdir()
    (folder / "traces" / "trace_rank-0.json").write_bytes(
        next(seed.data for seed in collected() if seed.format == "kineto")
    )
    (folder / "document.md").write_text(DOCUMENT, encoding="utf-8")
    (folder / ".envs").symlink_to(ROOT / ".envs")
    (folder / ".venv").symlink_to(ROOT / ".envs" / "torch")
    for ranks in (1, 2, 4):
        record(folder, f"mpirun -n {ranks} rankscope run --out runs/train-{ranks} python train.py")
    record(folder, "mpirun -n 2 rankscope run --imports paths --out RUN python train.py")
    record(folder, "rankscope load document.md --out DOCUMENT_RUN")
    subprocess.run(["bash", "-ec", TWO_BRANCHES], cwd=folder, check=True, capture_output=True)
    for copy in ("runs/main-1", "runs/main-2", "runs/faster-1", "runs/faster-2", "before", "after", "runs/march"):
        shutil.copytree(folder / "runs" / "train-2", folder / copy, symlinks=True)
    for copy in ("march", "2026-11-15T10-00-00-train"):
        shutil.copytree(folder / "runs" / "train-2", folder / "rankscope-runs" / copy, symlinks=True)
    (folder / "rankscope-runs" / "latest").symlink_to("march")
    synthetic = [sys.executable, ROOT / "tools" / "synthetic_run.py", folder / "big-run", "--ranks", "64"]
    subprocess.run([*synthetic, "--collectives", "50"], check=True, capture_output=True)
    return folder


def record(folder: Path, command: str) -> None:
    subprocess.run(command.split(), cwd=folder, env=environment(), check=True, capture_output=True)


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


def places(command: str) -> dict[str, str]:
    """The environment in which `python` has what the command needs, and nothing is left in the user's own folders."""
    found = environment()
    if re.search("torchrun|train_ddp.py|imports? torch|bench (startup|ddp|training)", command):
        found["PATH"] = f"{ROOT / '.envs' / 'torch' / 'bin'}{os.pathsep}{found['PATH']}"
    return {**found, "OMP_NUM_THREADS": "1", "PAGER": "cat"}


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
    commands = [one.command.replace("\n> ", "\n") for one in typed(page)]
    before: list[str] = []
    if any(place in command for command in commands for place in ELSEWHERE):
        before = request.getfixturevalue("elsewhere")
        for command in RECORDED_ELSEWHERE.get(page.name, ()):
            done = started(command, before, folder)
            assert done.returncode == 0, f"{command}: {done.stderr}"
    for command in commands:
        done = started(command, before, folder)
        # 1 to 3 without a word of ours: something was found, or a limit of `compare` cannot be judged
        refused = done.returncode and re.search("^rankscope", done.stderr, re.MULTILINE)
        assert done.returncode in (0, 1, 2, 3) and not refused, f"{command}: {done.returncode}: {done.stderr}"
        assert "Traceback" not in done.stderr, f"{command}: {done.stderr}"


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
        "cp -r times-1 times-4; cp -r times-1 times-16",
    ),
}


def started(command: str, before: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Typed in the folder; what serves until Ctrl-C gets one as soon as it says where."""
    shell = [*before, "bash", "-c", f"cd {shlex.quote(str(folder))} && {command}"]
    own = {**places(command), "XDG_CACHE_HOME": str(folder / "cache"), "RANKSCOPE_STAGE_TO": str(folder)}
    if "rankscope serve" in command:
        return served(shell, own)
    return subprocess.run(shell, env=own, capture_output=True, text=True, timeout=LONGEST_S)


def served(shell: list[str], own: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        shell, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        assert server.stdout and SERVES.match(server.stdout.readline())
        os.killpg(server.pid, signal.SIGINT)
        out, errors = server.communicate(timeout=LONGEST_S)
    return subprocess.CompletedProcess(shell, server.returncode, out, errors)
