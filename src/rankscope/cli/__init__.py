"""The command line: one file per command, imported only when it is called."""

import sys

from rankscope import __version__

# name -> what it does; the command is rankscope.cli.<name> with run(arguments) -> exit code and HELP.
COMMANDS = {
    "run": "start a command and record it",
    "report": "show a run: one screen of what matters, its tables, or a page",
    "hang": "is the job hung, in which collective, and which rank is missing",
    "top": "watch a running job",
    "watch": "run a command when a job slows down or hangs",
    "publish": "send a job's metrics to Prometheus, OpenTelemetry, MLflow or W&B",
    "compare": "compare runs: what changed, and how certain that is",
    "history": "show how runs differ over time: regressions, slow hosts",
    "whatif": "predict the step time without one of the job's problems",
    "goodput": "account for the wall time of a job over all its restarts",
    "runs": "list the runs: when, what, ranks, step time, first finding",
    "tables": "list the tables of a report by subject",
    "explain": "explain a label, a column, a table or a finding",
    "load": "load other tools' profiles, traces and logs as a run",
    "export": "export a run to other tools: timeline, tables, metrics",
    "serve": "browse the runs of a folder, live",
    "scale": "show how costs grow with the size of the job, and project them",
    "imports": "measure what imports cost",
    "index": "build one file that answers an environment's imports",
    "stage": "run a command from a node-local copy of its environment",
    "study": "run a matrix of jobs and write up the results",
    "bench": "run one cell of a study now",
    "slowfs": "mount a folder through a slow file system that counts operations",
    "gather": "collect rank files left on nodes by ranks that died",
    "doctor": "check what can be recorded here, and why not",
    "completion": "print shell completion for bash, zsh or fish",
}

HELP = """\
rankscope shows where a distributed training job spends its time.

usage: rankscope COMMAND [options] …

commands:
{commands}

  mpirun -n 4 rankscope run python train.py     record a job, rank by rank
  rankscope run mpirun -n 4 python train.py     the same, from outside
  rankscope report                              show the latest run
  rankscope hang                                is it stuck, and on which rank?

rankscope COMMAND --help says more; rankscope --version prints the version.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    word = arguments[0] if arguments else "--help"
    if word in COMMANDS:
        return call(word, arguments[1:])
    if word in ("--help", "-h", "help"):
        print(help_text(), end="")
        return 0 if arguments else 2
    if word == "--version":
        print(f"rankscope {__version__}")
        return 0
    from difflib import get_close_matches  # only here: it imports re, and starting a job must not

    like = get_close_matches(word, COMMANDS, 3, 0.5)
    hint = f"did you mean {' or '.join(like)}?" if like else "rankscope --help lists the commands"
    print(f"rankscope: unknown command {word!r}: {hint}", file=sys.stderr)
    return 2


def call(name: str, arguments: list[str]) -> int:
    """Import the command's module and run it."""
    module = __import__(f"rankscope.cli.{name}", fromlist=["run"])
    code = 0
    try:
        code = int(module.run(arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # as in `rankscope tables | head -1`
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def help_text() -> str:
    return HELP.format(commands="\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items()))
