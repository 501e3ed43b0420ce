"""`rankscope index`: one file that answers the imports of an environment."""

import json
import os
import subprocess
import sys

from rankscope.record.import_index import AUDITOR, SUFFIX, index_folder, start_with_index
from rankscope.record.options import UsageError

HELP = """\
usage: rankscope index ENV [--statement CODE [--libraries]] [--out FILE]
       rankscope index ENV --check | --remove
       rankscope index --run [--out FILE] -- command …

Builds one file that holds the code and location of an environment's modules, so
that imports need not search the file system. ENV is the folder of a virtual
environment, or its Python; it is not changed. Use the index with

  rankscope run --index python train.py                 record the job too
  mpirun -n 4 rankscope index --run -- python train.py  only use the index

A package that has changed since is read from the file system as usual;
RANKSCOPE_INDEX=off switches the index off.

options:
  --statement CODE   hold only the code that this imports, as in 'import torch':
                     a smaller file, read in order. The statement is run once
  --libraries        also store where the dynamic loader finds the libraries
                     that the statement loads, for a job with the same
                     LD_LIBRARY_PATH: worth it if that is long, or if libraries
                     search many folders
  --out FILE         the index, a name that ends in .rsindex (default: in the
                     user's cache, by the environment's path)
  --check            say what has changed since the index was built; nothing is
                     written
  --remove           remove the index
  --run              start the command with the index; it is not recorded
  --help             show this text

Exit code: 0; 1 if --check finds that something has changed or --remove finds no
index; 2 if there is no such environment or the index cannot be written; with
--run the command's own.
"""

AGENT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent")
START = (
    "import sys; sys.dont_write_bytecode = True; sys.path.append(sys.argv.pop(1)); import runpy; "
    "sys.argv[0] = ''; runpy.run_module('import_index', run_name='__main__')"
)
OLDEST = (3, 8)


class Asked:
    """The parsed command line."""

    def __init__(self) -> None:
        self.environment = self.statement = self.out = ""
        self.action = "build"
        self.libraries = False
        self.command: list[str] = []


def run(arguments: list[str]) -> int:
    """Build, check or remove an index, or start a command with it."""
    if "--help" in arguments[: arguments.index("--")] if "--" in arguments else {"--help", "-h"} & {*arguments}:
        print(HELP, end="")
        return 0
    try:
        request = parse(arguments)
        if request.action == "run":
            return start_with_index(request.out, request.command)
        return tell(request, ask(request))
    except UsageError as error:
        print(f"rankscope index: {error}", file=sys.stderr)
        return 2


def parse(arguments: list[str]) -> Asked:
    request, rest = Asked(), list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            request.command = rest
            break
        if word in ("--check", "--remove", "--run"):
            request.action = word[2:]
        elif word == "--libraries":
            request.libraries = True
        elif name in ("--statement", "--out"):
            value = value if equals else rest.pop(0) if rest else ""
            if not value:
                raise UsageError(f"{name} needs a value; see rankscope index --help")
            setattr(request, name[2:], value)
        elif word.startswith("-") or request.environment:
            raise UsageError(f"unexpected {word}; see rankscope index --help")
        else:
            request.environment = word
    check(request)
    return request


def check(request: Asked) -> None:
    if request.out and not request.out.endswith(SUFFIX):
        raise UsageError(f"--out {request.out} must end in {SUFFIX}")
    if request.libraries and not request.statement:
        raise UsageError("--libraries needs a --statement that loads them, as in: --statement 'import torch'")
    if request.libraries and not os.path.exists(AUDITOR):
        raise UsageError(f"--libraries needs {AUDITOR}; reinstall rankscope")
    if request.action == "run" and not (request.command and request.command[0]):
        raise UsageError("no command given; as in: rankscope index --run -- python train.py")
    if request.action != "run" and request.command:
        raise UsageError("a command is started with --run, as in: rankscope index --run -- python train.py")
    if request.action != "run" and not request.environment:
        raise UsageError("give the folder of a virtual environment or its Python, as in: rankscope index .venv")


def python_of(environment: str) -> str:
    """The Python of a virtual environment, which may also be named itself."""
    path = os.path.abspath(environment)
    for candidate in [path] if not os.path.isdir(path) else [f"{path}/bin/python", f"{path}/bin/python3"]:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise UsageError(
        f"{environment} is neither a virtual environment nor a Python; give the folder that holds bin/python"
    )


def ask(request: Asked) -> dict[str, object]:
    """Let the environment's own Python do the work: only it knows its sys.path and its bytecode."""
    python = python_of(request.environment)
    if request.action == "build" and sys.stderr.isatty():
        print(f"indexing {request.environment} …", file=sys.stderr)
    target = os.path.abspath(request.out) if request.out else ""
    command = [python, "-I", "-c", START, AGENT, request.action, index_folder(), target, request.statement]
    command.append(AUDITOR if request.libraries else "")
    try:
        done = subprocess.run(command, env=plain(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        answer = json.loads(done.stdout)
    except (OSError, ValueError) as error:
        last = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1] if isinstance(error, ValueError) else ""
        raise UsageError(f"{python} does not answer ({last or error}); it must be Python 3.8 or newer") from None
    if "failed" in answer:
        raise UsageError(str(answer["failed"]))
    return dict(answer)


def plain() -> dict[str, str]:
    """What is asked here is no part of a recorded job, nor answered by an older index."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")}


def tell(request: Asked, answer: dict[str, object]) -> int:
    if request.action == "build":
        print(summary(answer))
        return 0
    if request.action == "remove":
        print(f"{answer['path']}: {'removed' if answer['removed'] else 'there is no such index'}")
        return 0 if answer["removed"] else 1
    problems = answer["problems"]
    assert isinstance(problems, list)
    for line in problems:
        print(line)
    if not problems:
        print(f"{answer['path']}: everything is as recorded")
    return 1 if problems else 0


def summary(answer: dict[str, object]) -> str:
    code_mb, total_mb = (float(str(answer[name])) / 1e6 for name in ("code_bytes", "total_bytes"))
    known = f"{answer['libraries']} libraries of the loader; " if answer["libraries"] is not None else ""
    return (
        f"{answer['modules']} modules, the code of {answer['with_code']} of them ({code_mb:.1f} MB), "
        f"{answer['files']} files in {answer['folders']} folders; "
        f"{answer['left_to_python']} names are left to Python; {known}"
        f"{float(str(answer['seconds'])):.1f} s\n{answer['path']} ({total_mb:.1f} MB)"
    )
