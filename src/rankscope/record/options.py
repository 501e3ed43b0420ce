"""What `rankscope run` was asked to do. No argparse: it costs more than all the rest of this path."""

SMALLEST_FILE_BYTES = 64 * 1024
SMALLEST_TRACE_BYTES = 64 * 1024
LARGEST_TRACE_BYTES = 1024**3
TRACE_BYTES = 64 * 1024**2  # where --trace says nothing else
TRACE_KEEP = ("newest", "oldest")
CUDA = ("auto", "windows", "exact", "off")
CUDA_API = ("none", "sync", "all")
IMPORTS = ("off", "time", "calls", "paths")
SUFFIXES = {"K": 1024, "M": 1024**2, "G": 1024**3}


class UsageError(Exception):
    """The command line cannot be followed; the text says what to change."""


class RunOptions:
    """The parsed command line."""

    def __init__(self) -> None:
        self.out = ""
        self.local = ""
        self.matrix = False
        self.lookups = False
        self.file_bytes: int | None = None
        self.log_records: int | None = None
        self.cuda = ""
        self.cuda_api = ""
        self.trace_bytes: int | None = None
        self.trace_keep = ""
        self.imports = ""
        self.name = ""
        self.lineage = ""
        self.labels: dict[str, str] = {}
        self.index: str | None = None  # "": each Python's own, else a file
        self.quiet = False
        self.help = False
        self.command: list[str] = []


def parse(arguments: list[str]) -> RunOptions:
    """Split the arguments into our options and the command."""
    options = RunOptions()
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if not (take_flag(options, word) or take_trace(options, word, rest) or take_index(options, word, rest)):
            take_value(options, word, rest)
        if options.help:
            return options
    options.command = rest
    if not rest or not rest[0]:
        raise UsageError("no command given; as in: rankscope run python train.py")
    return options


def take_flag(options: RunOptions, word: str) -> bool:
    """Set the option that has no value, if this is one."""
    if word in ("-h", "--help"):
        options.help = True
    elif word == "--matrix":
        options.matrix = True
    elif word == "--lookups":
        options.lookups = True
    elif word == "--quiet":
        options.quiet = True
    else:
        return False
    return True


def take_trace(options: RunOptions, word: str, rest: list[str]) -> bool:
    """`--trace`, `--trace 64M` or `--trace=64M`: no command has the name of a size."""
    name, equals, value = word.partition("=")
    if name != "--trace":
        return False
    if not equals and rest and is_size(rest[0]):
        value = rest.pop(0)
    options.trace_bytes = trace_bytes_from(value) if equals or value else TRACE_BYTES
    return True


def take_index(options: RunOptions, word: str, rest: list[str]) -> bool:
    """`--index`, `--index FILE.rsindex` or `--index=FILE`: no command has a name that ends so."""
    name, equals, value = word.partition("=")
    if name != "--index":
        return False
    if equals and not value:
        raise UsageError("--index= needs a file; without = the environment's own index is used")
    options.index = value if equals or not (rest and rest[0].endswith(".rsindex")) else rest.pop(0)
    return True


def take_value(options: RunOptions, word: str, rest: list[str]) -> None:
    """Set the option that has a value, given as `--name value` or `--name=value`."""
    name, equals, value = word.partition("=")
    if name not in (
        "--out",
        "--local",
        "--size",
        "--log",
        "--cuda",
        "--cuda-api",
        "--trace-keep",
        "--imports",
        "--name",
        "--lineage",
        "--label",
    ):
        hint = "see rankscope run --help, and put -- before a command that begins with a dash"
        raise UsageError(f"unknown option {name}; {hint}")
    if not equals:
        value = rest.pop(0) if rest else ""
    if not value:
        raise UsageError(f"{name} needs a value; see rankscope run --help")
    if name == "--size":
        options.file_bytes = bytes_from(value)
    elif name == "--log":
        options.log_records = count_from(value)
    elif name == "--cuda":
        options.cuda = cuda_from(value)
    elif name == "--cuda-api":
        options.cuda_api = cuda_api_from(value)
    elif name == "--trace-keep":
        options.trace_keep = trace_keep_from(value)
    elif name == "--imports":
        options.imports = imports_from(value)
    elif name == "--label":
        called, labelled = label_from(value)
        options.labels[called] = labelled
    else:
        setattr(options, name[2:], value)


def label_from(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UsageError(f"--label {text} is not NAME=VALUE; as in: --label commit=$(git rev-parse HEAD)")
    return name, value


def bytes_from(text: str) -> int:
    """A size such as 65536, 64K or 4M."""
    if not is_size(text):
        raise UsageError(f"--size {text} is not a size; as in: --size 4M")
    size = size_of(text)
    if size < SMALLEST_FILE_BYTES:
        raise UsageError(f"--size {text} is too small for a rank file; give at least 64K")
    return size


def trace_bytes_from(text: str) -> int:
    """How large the trace of a rank may become."""
    if not is_size(text):
        raise UsageError(f"--trace={text} is not a size; as in: --trace 64M")
    size = size_of(text)
    if not SMALLEST_TRACE_BYTES <= size <= LARGEST_TRACE_BYTES:
        raise UsageError(f"--trace {text} is not valid; give a size from 64K to 1G")
    return size


def is_size(text: str) -> bool:
    digits = text[:-1] if text[-1:].upper() in SUFFIXES else text
    return digits.isascii() and digits.isdigit()


def size_of(text: str) -> int:
    return int(text[:-1]) * SUFFIXES[text[-1].upper()] if text[-1].upper() in SUFFIXES else int(text)


def trace_keep_from(text: str) -> str:
    """Which events stay where they are too many."""
    if text not in TRACE_KEEP:
        raise UsageError(f"--trace-keep {text} is not valid; choose one of {', '.join(TRACE_KEEP)}")
    return text


def count_from(text: str) -> int:
    """A number of records, 0 for none."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--log {text} is not a number of records; as in: --log 16384")
    return int(text)


def cuda_from(text: str) -> str:
    """How much to record of the GPUs."""
    if text not in CUDA:
        raise UsageError(f"--cuda {text} is not one of {', '.join(CUDA)}")
    return text


def cuda_api_from(text: str) -> str:
    """Which CUDA calls to record."""
    if text not in CUDA_API:
        raise UsageError(f"--cuda-api {text} is not one of {', '.join(CUDA_API)}")
    return text


def imports_from(text: str) -> str:
    """What to record of imports."""
    if text not in IMPORTS:
        raise UsageError(f"--imports {text} is not valid; choose one of {', '.join(IMPORTS)}")
    return text
