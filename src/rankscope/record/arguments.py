"""Launchers' command lines: which words are options, which are their values, and where the program begins."""

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


def arities(one: str, two: str = "") -> dict[str, int]:
    return {**dict.fromkeys(one.split(), 1), **dict.fromkeys(two.split(), 2)}


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
