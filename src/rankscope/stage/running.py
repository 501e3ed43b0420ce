"""What every rank does: get a place in the node's copy, then become the command there, or in place."""

import os
import time
import zlib

from rankscope.record.agreement import claimant
from rankscope.record.place import Place, cleaned, find_place
from rankscope.record.program import NoProgram, become, content, find_program, first_environment, restore_signals
from rankscope.stage.locks import Lock, Waited
from rankscope.stage.node import JOB, NotUsable, identity, open_folder, register
from rankscope.stage.options import Options
from rankscope.stage.roots import NoEnvironment, find_environment
from rankscope.stage.switching import command_in_copy, in_copy, in_place, read_roots
from rankscope.stage.task import Outcome, Task, local_ranks, outcome_from

ATTEMPTS = 2
PATIENCE_S = "600"
NOT_STAGED = 3  # exit code with --strict
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Start:
    """The command as it is to be started."""

    def __init__(self, command: list[str], environment: dict[str, str], outcome: Outcome, place: Place) -> None:
        self.command = command
        self.environment = environment
        self.outcome = outcome
        self.place = place
        self.waited_ns = 0  # from our beginning until the copy was there


def run_staged(options: Options) -> int:
    """Replace this process by the command; return only where it cannot be started."""
    began_ns = time.monotonic_ns()
    try:
        start = prepare(options)
        start.waited_ns = time.monotonic_ns() - began_ns
    except NoEnvironment as error:
        say(str(error))
        return 2
    if options.has("strict") and not start.outcome.copy:
        return NOT_STAGED
    try:
        program = find_program(start.command[0], start.environment)
        if options.value("times"):
            from rankscope.stage.timing import run_timed

            return run_timed(program, start, options)
        restore_signals()
        raise become(program, start.command, start.environment)
    except NoProgram as error:
        say(str(error))
        return error.exit_code


def prepare(options: Options) -> Start:
    """Where and how the command runs: in the copy, or in place and one warning."""
    environment = first_environment()
    place = find_place(environment)
    folder = find_environment(options.environment, environment)
    outcome = Outcome("", "") if options.has("in-place") else try_to_obtain(options, environment, place)
    if not outcome.copy:
        if outcome.reason:
            warn(options, place, outcome.reason)
        return Start(options.command, in_place(environment, folder), outcome, place)
    roots = read_roots(outcome.copy)
    command = command_in_copy(options.command, roots, outcome.copy)
    return Start(command, in_copy(environment, roots, outcome.copy), outcome, place)


def try_to_obtain(options: Options, environment: dict[str, str], place: Place) -> Outcome:
    """A place in the copy, or the reason why there is none: nothing of ours may keep the command from running."""
    try:
        return obtain(task_from(options, environment, place))
    except NotUsable as error:
        return Outcome("", str(error))
    except Waited as error:
        return Outcome("", f"{error.filename}: {error.strerror}")
    except OSError as error:
        return Outcome("", f"{error.filename or options.value('bundle')}: {error.strerror or error}")
    except Exception as error:  # a mistake of ours is no reason to stop a job
        return Outcome("", f"{type(error).__name__}: {error}; please report this")


def task_from(options: Options, environment: dict[str, str], place: Place) -> Task:
    bundle = os.path.abspath(options.value("bundle"))
    folder = open_folder(options.value("to") or default_place(environment))
    task = Task(bundle, folder, claimant(place), place)
    task.local_ranks = local_ranks(environment)
    task.expected = options.value("expect")
    task.meeting_folder = options.value("meet") or environment.get("RANKSCOPE_STAGE_MEET", "")
    task.keep = options.has("keep")
    task.check = options.value("check", "quick")
    task.times = os.path.abspath(options.value("times")) if options.value("times") else ""
    task.patience_s = float(options.value("patience", PATIENCE_S))
    return task


def default_place(environment: dict[str, str]) -> str:
    """Node-local storage: as told by a variable, as told by the batch system, or /tmp."""
    for name in ("RANKSCOPE_STAGE_TO", "SLURM_TMPDIR", "TMPDIR"):
        if environment.get(name):
            return environment[name]
    return "/tmp"


def obtain(task: Task) -> Outcome:
    """A place in the copy; the first rank of the node to come starts the keeper who brings it."""
    bundle = zlib.crc32(os.fsencode(task.bundle))
    key = task.asking.key or f"alone-{os.getpid()}"
    name = f"{task.folder}/{JOB}{cleaned(f'{key}-{task.asking.identity}')}-{bundle:08x}"
    user = identity(os.getpid())
    with Lock(f"{name}.lock", task.patience_s):
        outcome = read_outcome(f"{name}.done")
        for _ in range(ATTEMPTS):
            if outcome and outcome.reason:
                return outcome
            if outcome and outcome.copy and register(task.folder, outcome.copy, user):
                return outcome
            outcome = brought(task, name)
            write_outcome(f"{name}.done", outcome)
    if outcome and outcome.copy and register(task.folder, outcome.copy, user):
        return outcome
    return (
        outcome if outcome and outcome.reason else Outcome("", "its keeper was killed, or the copy was removed at once")
    )


def brought(task: Task, name: str) -> Outcome:
    """What the keeper says; it has its own life, this process waits for its word only."""
    from rankscope.stage.keeping import start_keeper, word_of

    return word_of(start_keeper(task, name), task.patience_s)


def read_outcome(path: str) -> Outcome | None:
    try:
        return outcome_from(os.fsdecode(content(path)))
    except OSError:
        return None


def write_outcome(path: str, outcome: Outcome) -> None:
    handle = os.open(path, NEW_FILE, 0o600)
    os.write(handle, os.fsencode(outcome.line))
    os.close(handle)


def warn(options: Options, place: Place, reason: str) -> None:
    if place.speaks:
        then = "nothing was started (--strict)" if options.has("strict") else "the command runs in place"
        say(f"not staged: {reason}; {then}")


def say(text: str) -> None:
    """One line on stderr, in one write so that lines of several ranks stay whole."""
    try:
        os.write(2, os.fsencode(f"rankscope: {text}\n"))
    except OSError:
        pass  # stderr may be closed; the job does not need it
