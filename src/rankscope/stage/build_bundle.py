"""Making a bundle: rehearse, choose, pack, and say what came of it."""

import os
import time
from typing import Any

from rankscope.record.program import NoProgram, find_program, first_environment
from rankscope.stage.bundle import BadBundle
from rankscope.stage.command import in_place
from rankscope.stage.contents import Choice, choose
from rankscope.stage.options import Options
from rankscope.stage.pack import pack, pack_image
from rankscope.stage.rehearsal import NoRehearsal, ReadRun, best_method, rehearse
from rankscope.stage.roots import NoEnvironment, default_bundle, find_environment, find_roots
from rankscope.stage.run import say
from rankscope.stage.touched import Touched, add, read_list

NOT_PACKED = 1


def make_bundle(options: Options, read_run: ReadRun) -> int:
    """Exit code 0 if the bundle is there."""
    try:
        made = make(options, read_run)
    except (NoEnvironment, NoRehearsal, NoProgram, BadBundle) as error:
        say(str(error))
        return NOT_PACKED
    except OSError as error:
        say(f"{error.filename or ''}: {error.strerror or error}; nothing was packed")
        return NOT_PACKED
    say(made)
    return 0


def make(options: Options, read_run: ReadRun) -> str:
    """Pack, and describe in one line what was packed."""
    environment = first_environment()
    folder = find_environment(options.environment, environment)
    path = options.value("bundle") or default_bundle(folder)
    with_base = True if options.has("base") else False if options.has("no-base") else None
    roots = find_roots(folder, options.lists["also"], with_base)
    touched, facts = touched_files(options, in_place(environment, folder), read_run)
    began_s = time.monotonic()
    choice = choose(roots, touched, options.lists["include"], options.has("all"))
    facts["environment_files"] = choice.seen_files
    if options.has("image"):
        identity = pack_image(choice, path, facts)
    else:
        identity = pack(choice, path, options.value("compress") == "zlib", facts)
    return described(choice, path, identity, time.monotonic() - began_s)


def touched_files(options: Options, environment: dict[str, str], read_run: ReadRun) -> tuple[Touched, dict[str, Any]]:
    """What was touched, by a rehearsal or by lists, and where we know it from."""
    touched: Touched = {}
    lists = [read_list(name) for name in options.lists["files"]] + [read_run(name) for name in options.lists["run"]]
    for found in lists:
        for path, how in found.items():
            add(touched, path, how)
    facts: dict[str, Any] = {"command": options.command, "method": "list"}
    if options.command:
        find_program(options.command[0], environment)
        facts["method"] = options.value("method") or best_method()
        for path, how in rehearse(options.command, environment, facts["method"], read_run).items():
            add(touched, path, how)
    return touched, facts


def described(choice: Choice, path: str, identity: str, took_s: float) -> str:
    root = choice.roots[0].real
    own = sum(1 for file in choice.files if file.startswith(root + "/"))
    share = f" ({own / choice.seen_files:.1%} of the environment's {choice.seen_files})" if choice.seen_files else ""
    others = len(choice.files) - own
    files = f"{own} files{share}" + (f" and {others} of the interpreter and other folders" if others else "")
    return f"{path}: {files}, {os.path.getsize(path) / 1024**2:.1f} MiB, {took_s:.1f} s; identity {identity}"
