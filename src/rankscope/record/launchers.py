"""Commands that start ranks: which launcher it is, how many ranks it will start, and how it passes variables on."""

import os
from itertools import pairwise

from rankscope.record.program import content

# ---------------------------------------------------------------------------------------------------------------------
# Launchers' command lines: which words are options, which are their values, and where the program begins.
OPENMPI_ONE = """
    n np c N npernode npersocket host H hostfile machinefile default-hostfile map-by bind-to rank-by x
    wdir wd output output-filename prefix tune am rankfile rf timeout display personality app path cpu-
    list cpu-set stdin dvm report-pid report-uri max-restarts preload-files"""
OPENMPI_TWO = "mca omca gmca prtemca pmixmca gpmixmca"
HYDRA_ONE = """
    n np ppn perhost hosts host f hostfile machinefile machine wdir gwdir genvlist envlist bind-to map-
    by membind binding launcher bootstrap launcher-exec bootstrap-exec iface rmk demux configfile tmpdir
    usize path gpath umask arch localhost outfile-pattern errfile-pattern ranks-per-proc gpus-per-proc
    gpu-subdevs-per-proc s ghost hostos pmi-port gtool gtoolfile timeout"""
HYDRA_TWO = "genv env"
PALS_ONE = """
    n np ppn d depth cpu-bind mem-bind env genv genvlist envlist hosts hostlist hostfile host f wdir
    gpu-bind rlimits tmpdir exclude-hosts mem-per-pe umask network path"""
SLURM_ONE = """
    ntasks nodes cpus-per-task partition time account job-name nodelist exclude output error input chdir
    gpus gpus-per-task gpus-per-node gpus-per-socket ntasks-per-node ntasks-per-core ntasks-per-socket
    ntasks-per-gpu mem mem-per-cpu mem-per-gpu mpi distribution cpu-bind mem-bind gpu-bind export qos
    constraint reservation gres licenses jobid dependency begin relative threads wait kill-on-bad-exit
    hint threads-per-core tmp comment network prolog epilog task-prolog task-epilog cores-per-socket
    sockets-per-node signal switches acctg-freq bcast slurmd-debug clusters het-group cpu-freq extra-
    node-info container profile propagate open-mode n N c p t A J w x o e i D G m d b C L M q r T W S B"""
TORCHRUN_ONE = """
    nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval
    start-method role log-dir redirects tee node-rank master-addr master-port local-addr logs-specs
    local-ranks-filter event-log-handler numa-binding duplicate-stdout-filters duplicate-stderr-filters
    r t"""


def arities(once: str, twice: str = "") -> dict[str, int]:
    return {**dict.fromkeys(once.split(), 1), **dict.fromkeys(twice.split(), 2)}


# How many words follow an option, by launcher. An option that is not here is taken to stand alone.
ARITY = {
    "openmpi": arities(OPENMPI_ONE, OPENMPI_TWO),
    "hydra": arities(HYDRA_ONE, HYDRA_TWO),
    "pals": arities(PALS_ONE),
    "slurm": arities(SLURM_ONE),
    "torchrun": arities(TORCHRUN_ONE),
}


class Option:
    """One option of a launcher: its name without dashes, its values, and where they stand."""

    def __init__(self, name: str, values: list[str], at: int, value_at: int) -> None:
        self.name = name
        self.values = values
        self.at = at
        self.value_at = value_at


def scan(arguments: list[str], arity: dict[str, int]) -> tuple[list[Option], int]:
    """The launcher's own options and the index of the program after them."""
    options: list[Option] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--":
            return options, at + 1
        option, width = option_at(arguments, at, arity)
        options.append(option)
        at += width
    return options, at


def option_at(arguments: list[str], at: int, arity: dict[str, int]) -> tuple[Option, int]:
    """The option at this place and how many words it takes."""
    word = arguments[at]
    name, equals, value = word.lstrip("-").partition("=")
    if word.startswith("--"):
        name = name.replace("_", "-")  # torchrun knows both spellings
    if equals and word.startswith("--"):
        return Option(name, [value], at, at), 1
    if name not in arity and arity.get(word[1:2]) == 1 and word[2:].isdigit():  # -n4
        return Option(word[1], [word[2:]], at, at), 1
    width = arity.get(name, 0)
    if width == 2 and name in ("env", "genv") and "=" in "".join(arguments[at + 1 : at + 2]):
        width = 1  # -genv NAME=value is understood as well as -genv NAME value
    values = arguments[at + 1 : at + 1 + width]
    if len(values) < width:
        values = []
    return Option(name, values, at, at + 1), 1 + len(values)


def contexts(arguments: list[str]) -> list[tuple[int, int]]:
    """Begin and end of every program's part of a line like `-n 1 a : -n 3 b`."""
    colons = [index for index, word in enumerate(arguments) if word == ":"]
    return list(zip([0, *(at + 1 for at in colons)], [*colons, len(arguments)], strict=True))


# ---------------------------------------------------------------- launchers
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
BOTH_STAND = ("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH")  # lists, in which what the user gives comes after ours


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
    """The launcher's arguments, with what it needs to give the added variables to ranks on other nodes.

    Ours are named, and the launcher takes the values from its own environment wherever it can: then any letter may be
    in them. A variable that the user gives to the ranks on this line keeps his value, behind ours where both can stand.
    """
    if family == "openmpi":
        return passing_on_openmpi(arguments, added)
    if family in ("hydra", "pals"):
        return passing_on_pairs(family, arguments, added)
    if family == "slurm":
        return passing_on_slurm(arguments, added, environment)
    return arguments


def beside_ours(name: str, theirs: str, added: dict[str, str]) -> str:
    """The value of one of our variables that the user gives to the ranks himself."""
    if name not in BOTH_STAND or name not in added:
        return theirs
    ours = added[name].split(":")
    most = (
        2 if ours[1:2] and os.path.basename(ours[1]).startswith("librankscope") else 1
    )  # the rest is the launcher's own
    first = ":".join(ours[:most])
    return first if theirs in ("", first) else first + ":" + theirs.removeprefix(first + ":")


def passing_on_openmpi(arguments: list[str], added: dict[str, str]) -> list[str]:
    """-x takes the value from mpirun's own environment; every program of an MPMD line needs its own."""
    result: list[str] = []
    for begin, end in contexts(arguments):
        context = arguments[begin:end]
        given = set()
        for option in scan(context, ARITY["openmpi"])[0]:
            if option.name == "x" and option.values:
                name, equals, theirs = option.values[0].partition("=")
                given.add(name)
                if equals and name in added:
                    assignment = f"{name}={beside_ours(name, theirs, added)}"
                    context[option.value_at] = f"--x={assignment}" if option.value_at == option.at else assignment
        result += [":"] if begin else []
        result += [word for name in added if name not in given for word in ("-x", name)]
        result += context
    return result


def passing_on_pairs(family: str, arguments: list[str], added: dict[str, str]) -> list[str]:
    """-genv NAME value (PALS: --env NAME=value) holds for all programs of the line."""
    arguments = list(arguments)
    given = set()  # for all programs; what one program is given alone does not keep ours from the others
    for begin, end in contexts(arguments):
        for option in scan(arguments[begin:end], ARITY[family])[0]:
            if option.name not in ("genv", "env") or not option.values:
                continue
            name, equals, theirs = option.values[0].partition("=")
            theirs = theirs if equals else option.values[-1]
            if option.name == "genv" or family == "pals":
                given.add(name)
            if name in added:
                value, at = beside_ours(name, theirs, added), begin + option.value_at
                if not equals:
                    arguments[at + 1] = value
                elif option.value_at == option.at:
                    arguments[at] = f"--{option.name}={name}={value}"
                else:
                    arguments[at] = f"{name}={value}"
    ours = [name for name in added if name not in given]
    if family == "pals":
        return [word for name in ours for word in ("--env", f"{name}={added[name]}")] + arguments
    return [word for name in ours for word in ("-genv", name, added[name])] + arguments


def passing_on_slurm(arguments: list[str], added: dict[str, str], environment: dict[str, str]) -> list[str]:
    """srun passes everything on unless --export (or its variable) names what to pass.

    Its list is cut at commas, so ours are in it by name alone. With ALL in the list srun's environment counts for more
    than a value in the list: what the user gives there must then be put into srun's environment, which has ours.
    """
    exports = [option for option in scan(arguments, ARITY["slurm"])[0] if option.name == "export" and option.values]
    wanted = exports[-1].values[0] if exports else environment.get("SLURM_EXPORT_ENV", "ALL")
    words = [word for word in at_commas(wanted) if word]
    everything = "ALL" in words
    names, given = [], set()
    for word in words:
        name, equals, theirs = word.partition("=")
        if name in added and equals and everything:
            if name not in environment:
                added[name] = beside_ours(name, theirs, added)
            continue
        if name in added and equals:
            value = beside_ours(name, theirs, added)
            if "," in value:
                added[name], word = value, name
            else:
                word = f"{name}={value}"
        if name in added:
            given.add(name)
        if word not in ("NONE", "NIL"):
            names.append(word)
    if everything and names == words:
        return arguments
    ours = [] if everything else [name for name in added if name not in given]
    export = "--export=" + ",".join(names + ours)
    if not exports:
        return [export, *arguments]
    last = exports[-1]
    return [*arguments[: last.at], export, *arguments[last.value_at + 1 :]]


def at_commas(text: str) -> list[str]:
    """The words between commas, as srun finds them: not those within quotes."""
    words, quote = [""], ""
    for letter in text:
        if letter == "," and not quote:
            words.append("")
            continue
        words[-1] += letter
        if letter == quote:
            quote = ""
        elif letter in "'\"" and not quote:
            quote = letter
    return words
