"""Commands that start ranks: which launcher it is, how many ranks it will start, and how it passes variables on."""

import os
from itertools import pairwise

from rankscope.record.arguments import ARITY, Option, contexts, scan
from rankscope.record.program import content

MPI_NAMES = ("mpirun", "mpiexec")
BY_NAME = {
    "orterun": "openmpi",
    "prterun": "openmpi",
    "prun": "openmpi",
    "mpirun.openmpi": "openmpi",
    "mpiexec.openmpi": "openmpi",
    "mpiexec.hydra": "hydra",
    "mpirun.mpich": "hydra",
    "mpiexec.mpich": "hydra",
    "srun": "slurm",
    "torchrun": "torchrun",
}
# Bytes that only the launchers of that family hold, in this order: PALS knows of hydra's options too.
BY_CONTENT = (
    (b"PALS", "pals"),
    (b"prterun", "openmpi"),
    (b"orterun", "openmpi"),
    (b"ompirun", "openmpi"),
    (b"hydra", "hydra"),
)
TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
RANKS_OPTIONS = ("n", "np", "c")


def find_launcher(program: str, command: list[str]) -> tuple[str, int]:
    """The launcher family ("" if none) and where in the command its arguments begin."""
    name = os.path.basename(program)
    if name.startswith("python"):
        for index, (word, module) in enumerate(pairwise(command)):
            if word == "-m" and module in TORCH_MODULES:
                return "torchrun", index + 2
        return "", 0
    if name in MPI_NAMES:
        return mpi_family(program), 1
    return BY_NAME.get(name, ""), 1


def mpi_family(program: str) -> str:
    """Whose mpirun this is, by the file behind the link or what is written in it."""
    path = os.path.realpath(program)
    known = BY_NAME.get(os.path.basename(path))
    if known:
        return known
    try:
        program_bytes = content(path)
    except OSError:
        return ""
    for mark, family in BY_CONTENT:
        if mark in program_bytes:
            return family
    return ""


def expected_ranks(family: str, arguments: list[str], environment: dict[str, str]) -> int | None:
    """How many ranks the launcher was told to start; None where it decides by itself."""
    if family == "torchrun":
        return torchrun_ranks(scan(arguments, ARITY[family])[0])
    if family == "slurm":
        return slurm_ranks(scan(arguments, ARITY[family])[0], environment)
    if family not in ARITY:
        return None
    counts = [number_of(scan(arguments[a:b], ARITY[family])[0], RANKS_OPTIONS) for a, b in contexts(arguments)]
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def number_of(options: list[Option], names: tuple[str, ...]) -> int | None:
    """The value of the last of these options, if it is a number."""
    for option in reversed(options):
        if option.name in names and option.values and option.values[0].isdigit():
            return int(option.values[0])
    return None


def torchrun_ranks(options: list[Option]) -> int | None:
    given = {option.name: option.values[0] for option in options if option.values}
    per_node, nodes = given.get("nproc-per-node", "1"), given.get("nnodes", "1")
    return int(per_node) * int(nodes) if per_node.isdigit() and nodes.isdigit() else None


def slurm_ranks(options: list[Option], environment: dict[str, str]) -> int | None:
    ranks = number_of(options, ("n", "ntasks"))
    nodes, per_node = number_of(options, ("N", "nodes")), number_of(options, ("ntasks-per-node",))
    if ranks is None and nodes is not None and per_node is not None:
        return nodes * per_node
    if ranks is None and nodes is None and environment.get("SLURM_NTASKS", "").isdigit():
        return int(environment["SLURM_NTASKS"])
    return ranks


def passing_on(family: str, arguments: list[str], added: dict[str, str], environment: dict[str, str]) -> list[str]:
    """The launcher's arguments, with what it needs to give the added variables to ranks on other nodes."""
    if family == "openmpi":
        return passing_on_openmpi(arguments, added)
    if family == "hydra":
        return passing_on_hydra(arguments, added)
    if family == "pals":
        return [word for name, value in added.items() for word in ("--env", f"{name}={value}")] + arguments
    if family == "slurm":
        return passing_on_slurm(arguments, added, environment)
    return arguments


def passing_on_openmpi(arguments: list[str], added: dict[str, str]) -> list[str]:
    """-x takes the value from mpirun's own environment; every program of an MPMD line needs its own."""
    result: list[str] = []
    for begin, end in contexts(arguments):
        context = arguments[begin:end]
        merge_preload(context, scan(context, ARITY["openmpi"])[0], added["LD_PRELOAD"])
        result += [":"] if begin else []
        result += [word for name in added for word in ("-x", name) if not gives(context, name)]
        result += context
    return result


def gives(context: list[str], name: str) -> bool:
    """Whether the user passes this variable on himself."""
    options = scan(context, ARITY["openmpi"])[0]
    return any(option.name == "x" and option.values[0].split("=")[0] == name for option in options)


def merge_preload(context: list[str], options: list[Option], preload: str) -> None:
    """Put our library in front of an LD_PRELOAD that the user gives to the ranks by -x."""
    for option in options:
        if option.name == "x" and option.values[0].startswith("LD_PRELOAD="):
            context[option.value_at] = in_front(preload, option.values[0])


def in_front(preload: str, assignment: str) -> str:
    library, theirs = preload.split(":")[0], assignment.partition("=")[2]
    return f"LD_PRELOAD={library}:{theirs}" if theirs else f"LD_PRELOAD={library}"


def passing_on_hydra(arguments: list[str], added: dict[str, str]) -> list[str]:
    """-genv holds for all programs of the line; a value that the user gives himself gets our library in front."""
    arguments = list(arguments)
    given = False
    for begin, end in contexts(arguments):
        for option in scan(arguments[begin:end], ARITY["hydra"])[0]:
            if option.name in ("genv", "env") and option.values[0] == "LD_PRELOAD":
                merged = in_front(added["LD_PRELOAD"], "LD_PRELOAD=" + option.values[1])
                arguments[begin + option.value_at + 1] = merged.partition("=")[2]
                given = given or option.name == "genv"
    names = [name for name in added if not (given and name == "LD_PRELOAD")]
    return [word for name in names for word in ("-genv", name, added[name])] + arguments


def passing_on_slurm(arguments: list[str], added: dict[str, str], environment: dict[str, str]) -> list[str]:
    """srun passes everything on unless --export (or its variable) names what to pass."""
    exports = [option for option in scan(arguments, ARITY["slurm"])[0] if option.name == "export"]
    wanted = exports[-1].values[0] if exports else environment.get("SLURM_EXPORT_ENV", "ALL")
    words = [word for word in wanted.split(",") if word]
    if "ALL" in words and not any(word.startswith("LD_PRELOAD=") for word in words):
        return arguments
    merged = [in_front(added["LD_PRELOAD"], word) for word in words if word.startswith("LD_PRELOAD=")]
    kept = [word for word in words if word != "NONE" and not word.startswith("LD_PRELOAD")]
    ours = [f"{name}={value}" for name, value in added.items() if not (merged and name == "LD_PRELOAD")]
    export = "--export=" + ",".join(kept + merged + ours)
    if not exports:
        return [export, *arguments]
    last = exports[-1]
    return [*arguments[: last.at], export, *arguments[last.value_at + 1 :]]
