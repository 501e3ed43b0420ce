"""`rankscope run`: start a command and record it."""

import sys

from rankscope.record.options import UsageError, parse
from rankscope.record.start import start

HELP = """\
usage: rankscope run [options] [--] command …

Runs the command with the recorder on. Each of its processes keeps a rank file
in the run's folder; output, exit code and signals stay the command's own.

  mpirun -n 4 rankscope run python train.py
                  inside a launcher: all ranks find the same folder
  rankscope run mpirun -n 4 python train.py
                  outside: the launcher passes our variables on

options:
  --out DIR       folder of the run (default: a dated one in rankscope-runs/; if
                  DIR holds another run: DIR-2, DIR-3 …)
  --local DIR     keep rank files in DIR on each node while the job runs; each
                  process copies its own to the run's folder when it ends, and
                  rankscope gather collects the rest
  --matrix        also count point-to-point bytes per destination rank
  --lookups       also record MPI calls of libraries that look MPI's functions
                  up by name, as oneCCL does
  --size BYTES    limit of one rank file, as in 64K or 4M (default 4M)
  --log N         how many collectives to keep per rank (default 8192, 0: none)
  --cuda X        what to record of GPUs: auto (the default: windows for torch,
                  else exact), windows (kernels of some whole steps where all of
                  them would cost more than 1 %; CUDA 12.6), exact (everything;
                  the default with --trace or --cuda-api), off
  --cuda-api X    CUDA calls to record: none, sync (those that launch, copy,
                  allocate or block; with exact), all
  --trace [SIZE]  also keep every event, in up to SIZE more bytes of each rank
                  file, as in 64M (the default) or 1G
  --trace-keep X  which events to keep when full: newest (the default) or
                  oldest; lost ones are counted
  --imports X     Python's imports: off, time (of each module; the default),
                  calls (also its system calls), paths (also the files it looks
                  up)
  --index[=FILE]  answer Python's imports from the environment's index (see
                  rankscope index)
  --name NAME     name of the run instead of the script's
  --lineage NAME  group this run with other starts of the same job, for
                  rankscope goodput (default: the batch system's job number)
  --label N=V     keep a label with the run, for rankscope history, as in
                  --label queue=long; may be repeated. The commit is read from
                  the files of the program's git repository; --label commit=…
                  overrides it
  --quiet         on a terminal, do not print where the run is recorded and what
                  to type next; warnings stay
  --help          show this text

Exit code: the command's own; 2 if an option of rankscope run is wrong; 127 or
126 if the command is not found or cannot be run.
"""


def run(arguments: list[str]) -> int:
    """Become the command; the exit code is that of a command that could not be started."""
    try:
        options = parse(arguments)
    except UsageError as error:
        print(f"rankscope run: {error}", file=sys.stderr)
        return 2
    if options.help:
        print(HELP, end="")
        return 0
    return start(options)
