"""`rankscope completion`: prints what makes a shell complete the words of rankscope, made from its own options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from rankscope.api.run import ALIASES, QUESTIONS
from rankscope.cli import COMMANDS

HELP = "print shell completion for bash, zsh or fish"
ABOUT = """\
Print a script that completes commands, options, their values, and names of tables and runs. For one session: bash and
zsh `source <(rankscope completion bash)`, fish `rankscope completion fish | source`. To install it, save it where
the shell looks: ~/.local/share/bash-completion/completions/rankscope, `_rankscope` in a folder of zsh's $fpath, or
~/.config/fish/completions/rankscope.fish."""
IN_HELP = re.compile(r"^ {2,}(--[a-z-]+)(?:[ =\[]+([A-Z]+))?", re.MULTILINE)  # of commands that do not use argparse
# The names of runs without their dates, as every command takes them.
RUN_NAMES = "ls rankscope-runs 2>/dev/null | sed 's/^....-..-..T..-..-..-//' | sort -u"
NUMBERS = "@1 @2 @3"


@dataclass(frozen=True, slots=True)
class Command:
    """What may stand behind a command."""

    about: str
    options: dict[str, Sequence[str] | None] = field(default_factory=dict)  # None: takes no value, (): any or a file
    takes_run: bool = False


def run(argv: list[str]) -> int:
    """0, always."""
    options = parser().parse_args(argv)
    print(SHELLS[options.shell](commands()), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope completion", description=ABOUT)
    arguments.add_argument("shell", choices=list(SHELLS), help="for which shell")
    return arguments


def commands() -> dict[str, Command]:
    """Every command with its options, by its parser or by its help."""
    return {name: _command(name, about) for name, about in COMMANDS.items()}


def _command(name: str, about: str) -> Command:
    module = import_module(f"rankscope.cli.{name}")
    if not hasattr(module, "parser"):
        named_options = IN_HELP.findall(module.HELP)
        takes_run = bool(re.search(r"^usage: .* RUN\b", module.HELP, re.MULTILINE))
        return Command(about, {option: () if value else None for option, value in named_options}, takes_run)
    actions = module.parser()._actions
    options = {option: _values(option, action) for action in actions for option in action.option_strings[-1:]}
    return Command(about, options, any(_is_run(str(action.metavar)) for action in actions if not action.option_strings))


def _is_run(place: str) -> bool:
    """A run, or a side of a comparison, which is mostly one."""
    return "RUN" in place or place == "SIDE"


def _values(option: str, action: argparse.Action) -> Sequence[str] | None:
    if action.nargs == 0:
        return None
    if action.choices:
        return [str(choice) for choice in action.choices]
    return [*QUESTIONS, *ALIASES] if option == "--table" else ()


# ---------------------------------------------------------------- shells
def bash(known: dict[str, Command]) -> str:
    return "\n".join(_bash_lines(known)) + "\n"


def _bash_lines(known: dict[str, Command]) -> Iterator[str]:
    yield "# bash completion of rankscope: made by `rankscope completion bash`"
    yield "_rankscope() {"
    yield '    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words="" before=""'
    yield "    COMPREPLY=()"
    yield "    if ((COMP_CWORD == 1)); then"
    yield f'        COMPREPLY=($(compgen -W "{" ".join(known)}" -- "$cur"))'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $prev" in'
    for name, command in known.items():
        for option, values in command.options.items():
            if values is not None:
                text = f'words="{" ".join(values)}"' if values else "return"  # a file: bash does that by itself
                yield f'    "{name} {option}") {text} ;;'
    yield "    *)"
    yield '        case "${COMP_WORDS[1]}" in'
    for name, command in known.items():
        runs = f" latest {NUMBERS} $({RUN_NAMES})" if command.takes_run else ""
        yield f'        {name}) words="{" ".join(command.options)}{runs}" ;;'
    yield "        esac ;;"
    yield "    esac"
    yield "    [[ $prev == --table && $cur == *,* ]] && before=${cur%,*},"
    yield '    COMPREPLY=($(compgen -P "$before" -W "$words" -- "${cur#"$before"}"))'
    yield "}"
    yield "complete -o default -F _rankscope rankscope"


def zsh(known: dict[str, Command]) -> str:
    return "\n".join(_zsh_lines(known)) + "\n"


def _zsh_lines(known: dict[str, Command]) -> Iterator[str]:
    yield "#compdef rankscope"
    yield "# zsh completion of rankscope: made by `rankscope completion zsh`"
    yield "_rankscope() {"
    yield "    local -a known"
    yield "    if (( CURRENT == 2 )); then"
    yield f"        known=({' '.join(_quoted(f'{name}:{command.about}') for name, command in known.items())})"
    yield "        _describe command known"
    yield "        return"
    yield "    fi"
    yield '    case "$words[2] $words[CURRENT-1]" in'
    for name, command in known.items():
        for option, values in command.options.items():
            if values is not None:
                many = "_sequence compadd - " if option == "--table" else "compadd - "
                yield f'    "{name} {option}") {many + " ".join(values) if values else "_files"}; return ;;'
    yield "    esac"
    yield '    case "$words[2]" in'
    for name, command in known.items():
        runs = f' latest {NUMBERS} ${{(f)"$({RUN_NAMES})"}}' if command.takes_run else ""
        yield f"    {name}) compadd - {' '.join(command.options)}{runs} ;;"
    yield "    esac"
    yield "    _files"
    yield "}"
    yield 'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _rankscope "$@"; else compdef _rankscope rankscope; fi'


def fish(known: dict[str, Command]) -> str:
    return "\n".join(_fish_lines(known)) + "\n"


def _fish_lines(known: dict[str, Command]) -> Iterator[str]:
    yield "# fish completion of rankscope: made by `rankscope completion fish`"
    for name, command in known.items():
        yield f"complete -c rankscope -n __fish_use_subcommand -xa {name} -d {_quoted(command.about)}"
    for name, command in known.items():
        text = f"complete -c rankscope -n '__fish_seen_subcommand_from {name}'"
        for option, values in command.options.items():
            offered = " ".join(values or ())
            if option == "--table":
                offered = f"(__fish_append , {offered})"  # several, with commas
            takes = "" if values is None else f" -xa '{offered}'" if values else " -r"
            yield f"{text} -l {option.removeprefix('--')}{takes}"
        if command.takes_run:
            yield f"{text} -a 'latest {NUMBERS} ({RUN_NAMES.replace(chr(39), chr(34))})'"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS: dict[str, Callable[[dict[str, Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
