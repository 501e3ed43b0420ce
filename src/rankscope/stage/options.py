"""What `rankscope stage` was asked to do. No argparse: every rank of a job comes through here."""

FLAGS = (
    "all",
    "base",
    "clean",
    "compare",
    "image",
    "in-place",
    "keep",
    "no-base",
    "record",
    "status",
    "strict",
)
VALUES = ("bundle", "check", "compress", "expect", "format", "meet", "method", "patience", "rounds", "times", "to")
LISTS = ("also", "files", "include", "run", "table")
CHOICES = {
    "check": ("quick", "full", "none"),
    "compress": ("none", "zlib"),
    "format": ("text", "csv", "json", "markdown"),
    "method": ("paths", "strace", "audit"),
}
NUMBERS = ("patience", "rounds")


class UsageError(Exception):
    """The command line cannot be followed; the text says what to change."""


class StageOptions:
    """The parsed command line; an option --two-words is two_words here."""

    def __init__(self) -> None:
        self.environment = ""
        self.command: list[str] = []
        self.given: list[str] = []  # the words before the command
        self.help = False
        self.flags: set[str] = set()
        self.values: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {name: [] for name in LISTS}

    def has(self, flag: str) -> bool:
        return flag in self.flags

    def value(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)


def parse(arguments: list[str]) -> StageOptions:
    """Split the arguments into the environment, our options and the command after --."""
    options = StageOptions()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            options.command = list(rest)
            break
        if word in ("-h", "--help"):
            options.help = True
            break
        if word.startswith("--"):
            take(options, word[2:], rest)
        elif word.startswith("-") or options.environment:
            raise UsageError(
                f"unexpected {word}; the command comes after --, as in: rankscope stage ENV -- python x.py"
            )
        else:
            options.environment = word
    options.given = arguments[: len(arguments) - len(rest) - (1 if options.command else 0)]
    return options


def take(options: StageOptions, word: str, rest: list[str]) -> None:
    """One option, given as `--name value` or `--name=value`."""
    name, equals, value = word.partition("=")
    if name in FLAGS and not equals:
        options.flags.add(name)
        return
    if name not in VALUES and name not in LISTS:
        raise UsageError(f"unknown option --{name}; see rankscope stage --help")
    if not equals:
        value = rest.pop(0) if rest else ""
    if not value or value == "--":
        raise UsageError(f"--{name} needs a value; see rankscope stage --help")
    check(name, value)
    if name in LISTS:
        options.lists[name].append(value)
    else:
        options.values[name] = value


def check(name: str, value: str) -> None:
    if name in CHOICES and value not in CHOICES[name]:
        raise UsageError(f"--{name} {value} is not valid; choose one of {', '.join(CHOICES[name])}")
    if name in NUMBERS and not (value.isascii() and value.isdigit() and int(value)):
        raise UsageError(f"--{name} {value} is not a number; as in: --{name} 5")
