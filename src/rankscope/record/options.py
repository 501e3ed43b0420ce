"""What `rankscope run` was asked to do. No argparse: it costs more than all the rest of this path."""

SMALLEST_FILE_BYTES = 64 * 1024
CUDA_API = ("none", "sync", "all")
SUFFIXES = {"K": 1024, "M": 1024**2, "G": 1024**3}


class UsageError(Exception):
    """The command line cannot be followed; the text says what to change."""


class Options:
    """The parsed command line."""

    def __init__(self) -> None:
        self.out = ""
        self.local = ""
        self.matrix = False
        self.file_bytes: int | None = None
        self.log_records: int | None = None
        self.cuda_api = ""
        self.name = ""
        self.quiet = False
        self.help = False
        self.command: list[str] = []


def parse(arguments: list[str]) -> Options:
    """Split the arguments into our options and the command."""
    options = Options()
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if not take_flag(options, word):
            take_value(options, word, rest)
        if options.help:
            return options
    options.command = rest
    if not rest or not rest[0]:
        raise UsageError("no command given; as in: rankscope run python train.py")
    return options


def take_flag(options: Options, word: str) -> bool:
    """Set the option that has no value, if this is one."""
    if word in ("-h", "--help"):
        options.help = True
    elif word == "--matrix":
        options.matrix = True
    elif word == "--quiet":
        options.quiet = True
    else:
        return False
    return True


def take_value(options: Options, word: str, rest: list[str]) -> None:
    """Set the option that has a value, given as `--name value` or `--name=value`."""
    name, equals, value = word.partition("=")
    if name not in ("--out", "--local", "--size", "--log", "--cuda-api", "--name"):
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
    elif name == "--cuda-api":
        options.cuda_api = cuda_api_from(value)
    else:
        setattr(options, name[2:], value)


def bytes_from(text: str) -> int:
    """A size such as 65536, 64K or 4M."""
    digits = text[:-1] if text[-1].upper() in SUFFIXES else text
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"--size {text} is not a size; as in: --size 4M")
    size = int(digits) * (SUFFIXES[text[-1].upper()] if digits != text else 1)
    if size < SMALLEST_FILE_BYTES:
        raise UsageError(f"--size {text} is too small for a rank file; give at least 64K")
    return size


def count_from(text: str) -> int:
    """A number of records, 0 for none."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--log {text} is not a number of records; as in: --log 16384")
    return int(text)


def cuda_api_from(text: str) -> str:
    """Which CUDA calls to record."""
    if text not in CUDA_API:
        raise UsageError(f"--cuda-api {text} is none of {', '.join(CUDA_API)}")
    return text
