"""What every rank does: get a place in the node's copy, then become the command there, or in place."""

import os
import resource
import select
import signal
import subprocess
import time
import zlib

from rankscope.record.place import Place, cleaned, find_place, process
from rankscope.record.program import NoProgram, become, content, find_program, first_environment, restore_signals
from rankscope.record.rendezvous import claimant
from rankscope.stage.command import command_in_copy, in_copy, in_place, read_roots
from rankscope.stage.node import JOB, Lock, NotUsable, Waited, identity, open_folder, register
from rankscope.stage.options import StageOptions
from rankscope.stage.roots import NoEnvironment, default_bundle, find_environment
from rankscope.stage.task import StageOutcome, StageTask, local_ranks, node_name, outcome_from

# ---------------------------------------------------------------- starting the keeper, and waiting for its word
LONGEST_LINE_BYTES = 65536


def start_keeper(task: StageTask, name: str) -> int:
    """Fork twice, so that nobody has to wait for the keeper; the end of a pipe at which it says the outcome."""
    outlet_read, outlet = os.pipe()
    child = os.fork()
    if child:
        os.close(outlet)
        os.waitpid(child, 0)
        return outlet_read
    try:
        os.setsid()
        if os.fork() == 0:
            keep(task, name, outlet)
    finally:
        os._exit(0)  # whatever happens: no second copy of the rank may go on


def keep(task: StageTask, name: str, outlet: int) -> None:
    outlet = detach(outlet)
    from rankscope.stage.node_daemon import Keeper

    Keeper(task, name, outlet).run()


def detach(outlet: int) -> int:
    """Let go of everything of the job: its output, its launcher's sockets, its folder."""
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(outlet, 3) if outlet != 3 else None
    for standard in range(3):
        os.dup2(nothing, standard)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(4, min(max(soft, 4096), 1 << 20))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.umask(0o022)
    os.chdir("/")
    return 3


def word_of(outlet: int, patience_s: float) -> StageOutcome:
    """The keeper's word; no word where it was killed or does not come to an end."""
    text = b""
    try:
        while not text.endswith(b"\n"):
            if not select.select([outlet], [], [], patience_s)[0]:
                return StageOutcome("", f"nothing arrived within {patience_s:.0f} s")
            block = os.read(outlet, LONGEST_LINE_BYTES)
            if not block:
                return StageOutcome("", "")  # killed: the next attempt starts another
            text += block
    finally:
        os.close(outlet)
    return outcome_from(os.fsdecode(text))


# ---------------------------------------------------------------- run
ATTEMPTS = 2
PATIENCE_S = "600"
NOT_STAGED = 3  # exit code with --strict
INTERRUPTED = 130  # as a shell gives it
LAUNCHER = "by the ranks"  # instead of a copy: we are outside, each rank gets its own
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class StagedStart:
    """The command as it is to be started."""

    def __init__(self, command: list[str], environment: dict[str, str], outcome: StageOutcome, place: Place) -> None:
        self.command = command
        self.environment = environment
        self.outcome = outcome
        self.place = place


def run_staged(options: StageOptions) -> int:
    """Replace this process by the command; return only where it cannot be started."""
    try:
        start = prepare(options)
    except NoEnvironment as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:  # while it waited; the keeper sees that nobody came
        return INTERRUPTED
    if options.has("strict") and not start.outcome.copy:
        return NOT_STAGED
    try:
        program = find_program(start.command[0], start.environment)
        if options.value("times") and start.outcome.copy != LAUNCHER:
            return run_timed(program, start, options)
        restore_signals()
        raise become(program, start.command, start.environment)
    except NoProgram as error:
        say(str(error))
        return error.exit_code


def prepare(options: StageOptions) -> StagedStart:
    """Where and how the command runs: in the copy, or in place and one warning."""
    environment = first_environment()
    place = find_place(environment)
    folder = find_environment(options.environment, environment)
    bundle = os.path.abspath(options.value("bundle") or default_bundle(folder))
    if not place.launcher and may_launch(options.command):
        command = launched(options, folder, bundle, environment)
        if command:
            return StagedStart(command, in_place(environment, folder), StageOutcome(LAUNCHER, ""), place)
    outcome = StageOutcome("", "") if options.has("in-place") else try_to_obtain(options, bundle, environment, place)
    try:
        roots = read_roots(outcome.copy) if outcome.copy else []
    except (OSError, ValueError) as error:
        outcome, roots = StageOutcome("", f"{outcome.copy} was taken away ({error})"), []
    if not roots:
        if outcome.reason:
            warn(options, place, outcome.reason)
        return StagedStart(options.command, in_place(environment, folder), outcome, place)
    if outcome.summary and not place.rank and os.isatty(2):  # what a script collects stays the job's own
        say(outcome.summary)
    command = command_in_copy(options.command, roots, outcome.copy)
    return StagedStart(command, in_copy(environment, roots, outcome.copy), outcome, place)


def may_launch(command: list[str]) -> bool:
    """A look at the name, so that most commands need not load what is known about launchers."""
    name = os.path.basename(command[0])
    return "run" in name or "mpiexec" in name


def launched(options: StageOptions, folder: str, bundle: str, environment: dict[str, str]) -> list[str] | None:
    """The launcher's command with ourselves in every rank; None if it is no launcher of ranks."""
    from rankscope.stage.command import inserted, ourselves

    given = [word for word in options.given if word != options.environment]
    words = [*ourselves(), "stage", folder, *given, "--bundle", bundle, "--"]
    return inserted(options.command, words, in_place(environment, folder))


def try_to_obtain(options: StageOptions, bundle: str, environment: dict[str, str], place: Place) -> StageOutcome:
    """A place in the copy, or the reason why there is none: nothing of ours may keep the command from running."""
    try:
        return obtain(task_from(options, bundle, environment, place))
    except NotUsable as error:
        return StageOutcome("", str(error))
    except Waited as error:
        return StageOutcome("", f"{error.filename}: {error.strerror}")
    except OSError as error:
        return StageOutcome("", f"{error.filename or bundle}: {error.strerror or error}")
    except Exception as error:  # a mistake of ours is no reason to stop a job
        return StageOutcome("", f"{type(error).__name__}: {error}; please report this")


def task_from(options: StageOptions, bundle: str, environment: dict[str, str], place: Place) -> StageTask:
    folder = open_folder(options.value("to") or default_place(environment))
    task = StageTask(bundle, folder, claimant(place), place)
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


def obtain(task: StageTask) -> StageOutcome:
    """A place in the copy; the first rank of the node to come starts the keeper who brings it."""
    bundle = zlib.crc32(os.fsencode(task.bundle))
    key = task.asking.key or f"alone-{os.getpid()}"
    name = f"{task.folder}/{JOB}{cleaned(f'{key}-{task.asking.identity}')}-{bundle:08x}"
    task.job = f"{zlib.crc32(os.fsencode(name)):08x}"
    user = identity(task.job)
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
    if outcome and outcome.reason:
        return outcome
    return StageOutcome("", "its keeper was killed, or the copy was removed at once")


def brought(task: StageTask, name: str) -> StageOutcome:
    """What the keeper says; it has its own life, this process waits for its word only."""

    return word_of(start_keeper(task, name), task.patience_s)


def read_outcome(path: str) -> StageOutcome | None:
    try:
        return outcome_from(os.fsdecode(content(path)))
    except OSError:
        return None


def write_outcome(path: str, outcome: StageOutcome) -> None:
    handle = os.open(path, NEW_FILE, 0o600)
    os.write(handle, os.fsencode(outcome.line))
    os.close(handle)


def warn(options: StageOptions, place: Place, reason: str) -> None:
    if place.speaks:
        then = "nothing was started (--strict)" if options.has("strict") else "the command runs in place"
        say(f"not staged: {reason}; {then}")


def say(text: str) -> None:
    """One line on stderr, in one write so that lines of several ranks stay whole."""
    try:
        os.write(2, os.fsencode(f"rankscope: {text}\n"))
    except OSError:
        pass  # stderr may be closed; the job does not need it


# ---------------------------------------------------------------------------------------------------------------------
# With --times: the command runs as a child, and how long it took is noted for the table.
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_timed(program: str, start: "StagedStart", options: "StageOptions") -> int:
    """The command's exit code; a signal that ends the command ends us too."""
    folder = os.path.abspath(options.value("times"))
    os.makedirs(folder, exist_ok=True)
    waited_ns = age_ns()
    began_ns = time.monotonic_ns()
    child = subprocess.Popen(start.command, executable=program, env=start.environment)
    for number in PASSED_ON:
        signal.signal(number, lambda received, _: child.send_signal(received))
    exit_code = child.wait()
    write(folder, start, waited_ns, time.monotonic_ns() - began_ns, exit_code)
    if exit_code < 0:
        signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    return exit_code


def age_ns() -> int:
    """How long this process has been there, the start of its Python included; to 10 ms."""
    process_identity = process(os.getpid())
    return time.time_ns() - process_identity.started_ns if process_identity else 0


def write(folder: str, start: "StagedStart", waited_ns: int, import_ns: int, exit_code: int) -> None:
    """One rank's line, in a file of its own; written beside and renamed."""
    import json

    copy = start.outcome.copy
    report = {
        "rank": start.place.rank,
        "host": os.uname().nodename,
        "node": node_name(os.path.dirname(copy)) if copy else os.uname().nodename,
        "staged": bool(copy),
        "reason": start.outcome.reason,
        "import_ns": import_ns,
        "waited_ns": waited_ns,
        "exit_code": exit_code,
    }
    rank = start.place.rank if start.place.rank is not None else os.getpid()
    path = f"{folder}/rank-{rank}.json"
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(report, file)
    os.replace(f"{path}.part", path)
