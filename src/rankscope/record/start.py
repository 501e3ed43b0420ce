"""`rankscope run`: prepare the recording, then become the command, whatever happened before."""

import os
import time

from rankscope import __version__
from rankscope.record.options import RunOptions
from rankscope.record.place import Place, find_place
from rankscope.record.preload import FIRST_RUNTIMES, LIBRARY, NotRecordable, check_library, check_program
from rankscope.record.program import (
    PYTHON_STARTERS,
    NoProgram,
    become,
    find_program,
    first_environment,
    restore_signals,
)
from rankscope.record.run_folder import ROOT, Json, RunFolder, describe, find_folder, point_latest

# ---------------------------------------------------------------------------------------------------------------------
# MPI calls of libraries that look MPI's functions up by name: an auditor of the dynamic loader gives them ours.
AUDITOR = os.path.join(os.path.dirname(LIBRARY), "librankscope_lookups.so")


def lookup_variables(environment: dict[str, str], added: dict[str, str]) -> dict[str, str]:
    """LD_AUDIT with ours behind those that are there already."""
    if lookup_problem():
        return {}
    there = (added.get("LD_AUDIT") or environment.get("LD_AUDIT", "")).split(":")
    return {"LD_AUDIT": ":".join([*(word for word in there if word not in ("", AUDITOR)), AUDITOR])}


def lookup_problem() -> str:
    """Why it cannot be done here, "" where it can."""
    from rankscope.record.import_index import has_good_auditing

    if not has_good_auditing():
        return "--lookups needs glibc 2.35 or later: MPI calls that libraries look up by name are not recorded"
    if not os.path.exists(AUDITOR):
        return f"--lookups: there is no {AUDITOR}; reinstall rankscope"
    return ""


# ---------------------------------------------------------------- start
MOST_PLUGIN_PATH = 254  # NCCL cuts longer ones
AGENT = os.path.join(os.path.dirname(os.path.dirname(LIBRARY)), "agent", "start")  # holds a sitecustomize.py
WRAPPERS = os.path.join(os.path.dirname(LIBRARY), "librankscope_calls.so")  # of functions of libc
NOBODY = "00000000:............"  # written over in place by each process that has a file: native/core/process.c
INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")  # what CUDA and NVTX load by themselves
# How processes that NVIDIA's tools have started are known: by variables, and by libraries that they preload or inject.
NSIGHT_COMPUTE = ("NV_NSIGHT_INJECTION_PORT_BASE", "NV_COMPUTE_PROFILER_PERFWORKS_DIR")
NCU_FILES = ("libTreeLauncher", "libInterceptorInjectionTarget", "libcuda-injection")
NSYS_FILES = ("libToolsInjection",)
LAYERS = "OPENCL_LAYERS"  # what OpenCL's loader loads


class LaunchPlan:
    """The command and the variables with which it is recorded."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: RunFolder) -> None:
        self.command = command
        self.environment = environment
        self.folder = folder


def start(options: RunOptions) -> int:
    """Replace this process by the command; return only the exit code of a command that cannot be started."""
    environment = first_environment()
    try:
        program = find_program(options.command[0], environment)
    except NoProgram as error:
        return give_up(error)
    place = find_place(environment)
    plan = try_to_plan(options, program, environment, place)
    restore_signals()
    if plan:
        become(program, plan.command, plan.environment)  # comes back e.g. where our variables are one too many
    return give_up(become(program, options.command, environment))


def give_up(error: NoProgram) -> int:
    say(str(error))
    return error.exit_code


def say(text: str) -> None:
    """One line on stderr, in one write so that lines of several ranks stay whole."""
    try:
        os.write(2, os.fsencode(f"rankscope: {text}\n"))
    except OSError:
        pass  # stderr may be closed; the job does not need it


def try_to_plan(options: RunOptions, program: str, environment: dict[str, str], place: Place) -> LaunchPlan | None:
    """The plan, or None and one warning: nothing of ours may keep the command from running."""
    try:
        plan = make_plan(options, program, environment, place)
    except NotRecordable as reason:
        warn(place, str(reason))
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        warn(place, f"{error.strerror or error}{where}; give a folder that can be written with --out")
    except Exception as error:  # a mistake of ours is no reason to stop a job
        warn(place, f"{type(error).__name__}: {error}; please report this, the command runs without rankscope")
    else:
        plan.environment.pop("RANKSCOPE_END", None)  # of a run that this one is inside of
        if plan.folder.created:
            announce(options, plan)
        return plan
    return None


def announce(options: RunOptions, plan: LaunchPlan) -> None:
    """Where it is recorded, now, and by the recorder when the command has ended."""
    folder = plan.folder
    if speaks(options):
        named = f" {shown(folder.path)}" if options.out else ""
        plan.environment["RANKSCOPE_END"] = (
            f"rankscope: recorded in {shown(folder.path)}; next: rankscope report{named}"
        )
    if options.out and folder.path != os.path.abspath(options.out):
        say(f"{options.out} already holds another run: recording to {shown(folder.path)}")
    elif speaks(options):
        say(f"recording to {shown(folder.path)}")


def speaks(options: RunOptions) -> bool:
    """Whether anything but a warning is said: what a script collects stays the job's own."""
    return not options.quiet and os.isatty(2)


def warn(place: Place, text: str) -> None:
    if place.speaks:
        say(f"not recording: {text}")


def shown(path: str) -> str:
    """The path as the user would type it."""
    here = os.getcwd() + "/"
    return path.removeprefix(here)


def make_plan(options: RunOptions, program: str, environment: dict[str, str], place: Place) -> LaunchPlan:
    """Check everything, make the folder, and say how the command is to be started."""
    if not is_recorded(environment):
        check_program(program, check_library())
    elif not options.out:
        return joined_plan(options, program, environment)
    folder = find_folder(options, place)
    added = variables(options, folder, environment)
    command, family, ranks = launched(options, program, environment, added)
    if folder.created and options.index is not None:
        from rankscope.record.import_index import missing_index

        missing = missing_index(options.index, options.command, environment)
        if missing:
            say(missing)
    if folder.created and options.lookups:
        problem = lookup_problem()
        if problem:
            say(problem)
    if folder.created:
        describe(folder, description(options, folder, family or place.launcher, ranks if family else place.ranks))
        if os.path.dirname(folder.path) == os.path.abspath(ROOT) and folder.name != "latest":
            point_latest(folder)
        if any("python" in word or word.endswith(PYTHON_STARTERS) for word in options.command):
            from rankscope.record.torch_observer import prepare

            if prepare(options.command, environment) and speaks(options):
                say("Python hooks observe torch in this run; the observer for the next one is being compiled")
    if options.local:
        os.makedirs(added["RANKSCOPE_DIR"], exist_ok=True)
    return LaunchPlan(command, {**environment, **added}, folder)


def is_recorded(environment: dict[str, str]) -> bool:
    """Whether we ourselves were started by a `rankscope run`."""
    return bool(environment.get("RANKSCOPE_DIR")) and LIBRARY in environment.get("LD_PRELOAD", "").split(":")


def joined_plan(options: RunOptions, program: str, environment: dict[str, str]) -> LaunchPlan:
    """Inside a recorded script: the same run, only told to a launcher."""
    ours = ("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "NCCL_PROFILER_PLUGIN", *INJECTIONS, LAYERS)
    added = {name: environment[name] for name in environment if name in ours or name.startswith("RANKSCOPE_")}
    command = launched(options, program, environment, added)[0]
    return LaunchPlan(command, environment, RunFolder(environment["RANKSCOPE_DIR"], False))


def variables(options: RunOptions, folder: RunFolder, environment: dict[str, str]) -> dict[str, str]:
    """What the recorder is told: docs/inside/environment.md."""
    ours = [LIBRARY, WRAPPERS] if counts_calls(options, environment) else [LIBRARY]
    theirs = [word for word in environment.get("LD_PRELOAD", "").split(":") if word not in ("", LIBRARY, WRAPPERS)]
    first = [word for word in theirs if os.path.basename(word).startswith(FIRST_RUNTIMES)]  # or they end the program
    preload = ":".join([*first, *ours, *(word for word in theirs if word not in first)])
    added = {"LD_PRELOAD": preload, "RANKSCOPE_DIR": folder.path, "RANKSCOPE_PID": str(os.getpid())}
    added["RANKSCOPE_PARENT"] = NOBODY
    if ":" not in AGENT and (environment.get("RANKSCOPE_TORCH") != "0" or options.index is not None):
        added["PYTHONPATH"] = python_path(environment)
    if options.index is not None:
        from rankscope.record.import_index import index_variables

        added |= index_variables(options.index, options.command, environment)
    if options.lookups:
        added |= lookup_variables(environment, added)
    if ":" not in LIBRARY:  # behind others: the loader ocl-icd leaves programs that are started later the first alone
        added[LAYERS] = ":".join([*words_of(environment.get(LAYERS, "")), LIBRARY])
    added["RANKSCOPE_CUDA"] = cuda_mode(options, environment)
    added |= plugin_variables(environment)
    if options.cuda_api:
        added["RANKSCOPE_CUDA_API"] = options.cuda_api
    if options.local:
        added["RANKSCOPE_DIR"] = local_folder(options, folder)
        added["RANKSCOPE_COLLECT"] = folder.path
    if options.file_bytes is not None:
        added["RANKSCOPE_FILE_BYTES"] = str(options.file_bytes)
    if options.log_records is not None:
        added["RANKSCOPE_LOG_RECORDS"] = str(options.log_records)
    if options.trace_bytes is not None:
        added["RANKSCOPE_TRACE_BYTES"] = str(options.trace_bytes)
    if options.trace_keep:
        added["RANKSCOPE_TRACE_KEEP"] = options.trace_keep
    if options.matrix:
        added["RANKSCOPE_MATRIX"] = "1"
    if options.imports:
        added["RANKSCOPE_IMPORTS"] = options.imports
    if environment.get("RANKSCOPE_IMPORTS_UNTIL"):  # so that launchers pass it on
        added["RANKSCOPE_IMPORTS_UNTIL"] = environment["RANKSCOPE_IMPORTS_UNTIL"]
    return added


def plugin_variables(environment: dict[str, str]) -> dict[str, str]:
    """What NCCL, CUDA and NVTX load by themselves: ours; what the job had there is loaded behind it."""
    added: dict[str, str] = {}
    tool = nsight(environment)
    for name in ("NCCL_PROFILER_PLUGIN", *INJECTIONS):
        theirs = environment.get(name) or ""
        is_nccl = name not in INJECTIONS
        if is_nccl and (theirs.lower() == "none" or len(LIBRARY) >= MOST_PLUGIN_PATH):
            continue
        if tool and not is_nccl:
            continue
        added[name] = LIBRARY
        if theirs not in ("", LIBRARY):
            added[f"RANKSCOPE_{name}"] = theirs
    if tool:
        added |= {"RANKSCOPE_CUDA": "0", "RANKSCOPE_CUDA_ASIDE": tool}
    return added


def nsight(environment: dict[str, str]) -> str:
    """Which tool of NVIDIA's has started us: it needs CUPTI and the driver's callbacks for itself; "" where none."""
    words = [*environment.get("LD_PRELOAD", "").split(":"), *(environment.get(name) or "" for name in INJECTIONS)]
    files = [os.path.basename(word) for word in words]
    if any(name in environment for name in NSIGHT_COMPUTE) or any(name.startswith(NCU_FILES) for name in files):
        return "Nsight Compute"
    if "NSYS_PROFILING_SESSION_ID" in environment or any(name.startswith(NSYS_FILES) for name in files):
        return "Nsight Systems"
    return ""


def words_of(others: str) -> list[str]:
    """Of a list with colons: those that are not ours."""
    return [word for word in others.split(":") if word not in ("", LIBRARY)]


def cuda_mode(options: RunOptions, environment: dict[str, str]) -> str:
    """Trainings in windows, unless single calls or events are asked for, which are not seen between them."""
    if options.cuda:
        return "0" if options.cuda == "off" else options.cuda
    is_whole = options.cuda_api not in ("", "none") or options.trace_bytes is not None
    return environment.get("RANKSCOPE_CUDA") or ("exact" if is_whole else "auto")


def counts_calls(options: RunOptions, environment: dict[str, str]) -> bool:
    """Whether system calls are to be counted: only then are functions of libc wrapped."""
    has_calls = (options.imports or environment.get("RANKSCOPE_IMPORTS")) in ("calls", "paths")
    return has_calls and os.path.exists(WRAPPERS)  # the loader complains of what is not there


def python_path(environment: dict[str, str]) -> str:
    """Where Python finds our sitecustomize first, and then everything it would find without us."""
    theirs = environment.get("PYTHONPATH", "")
    return AGENT if theirs in ("", AGENT) else AGENT + ":" + theirs.removeprefix(AGENT + ":")


def local_folder(options: RunOptions, folder: RunFolder) -> str:
    return os.path.join(os.path.abspath(options.local), folder.node_name)


def launched(
    options: RunOptions, program: str, environment: dict[str, str], added: dict[str, str]
) -> tuple[list[str], str, int | None]:
    """The command, told to pass our variables on if it is a launcher; which one; how many ranks it starts."""
    if not may_launch(program, options.command):
        return options.command, "", None
    from rankscope.record.launchers import expected_ranks, find_launcher, passing_on

    family, begin = find_launcher(program, options.command)
    if not family:
        return options.command, "", None
    arguments = options.command[begin:]
    command = options.command[:begin] + passing_on(family, arguments, added, environment)
    return command, family, expected_ranks(family, arguments, environment)


def may_launch(program: str, command: list[str]) -> bool:
    """A look at the name, so that most ranks need not load what is known about launchers."""
    name = os.path.basename(program)
    return name in ("srun", "torchrun") or "run" in name or "mpiexec" in name or "-m" in command


# A batch system that starts a job anew gives it the same number.
BATCH_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID")


def batch_job() -> str | None:
    """The batch system's name for the job that this run is a part of."""
    settings = [f"{name}={os.environ[name]}" for name in BATCH_JOBS if os.environ.get(name)]
    return settings[0] if settings else None


def description(options: RunOptions, folder: RunFolder, launcher: str, ranks: int | None) -> dict[str, Json]:
    """The content of run.json."""
    from rankscope.record.commit import commit_of  # only who makes the folder of a run asks

    chosen: dict[str, Json] = {
        "out": options.out or ROOT,
        "local": os.path.abspath(options.local) if options.local else None,
        "local_dir": local_folder(options, folder) if options.local else None,
        "matrix": options.matrix,
        "lookups": options.lookups,
        "file_bytes": options.file_bytes,
        "log_records": options.log_records,
        "cuda": options.cuda or None,
        "cuda_api": options.cuda_api or None,
        "index": options.index,
        "trace_bytes": options.trace_bytes,
        "trace_keep": options.trace_keep or None,
        "imports": options.imports or None,
    }
    return {
        "format": 1,
        "name": folder.name,
        "command": options.command,
        "launcher": launcher or None,
        "expected_ranks": ranks,
        "started_ns": time.time_ns(),
        "host": os.uname().nodename,
        "cwd": os.getcwd(),
        "rankscope_version": __version__,
        "lineage": options.lineage or batch_job(),
        "commit": commit_of(options.command),
        "labels": dict(options.labels),
        "library_path": os.environ.get("LD_LIBRARY_PATH"),
        "options": chosen,
    }
