"""What a rank file says of imports: modules, their system calls, the paths they asked for."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model.records import BadFile, Note, Severity
from rankscope.model.tables import Words
from rankscope.rank_file import CallsMethod, Cause, ChunkKind, ImportsMode, ModuleFlag, Operation, Rows
from rankscope.rank_files.chunks import RankFile
from rankscope.rank_files.clock import Clock

# ---------------------------------------------------------------------------------------------------------------------
# Names of system calls, by their numbers on x86-64, as strace prints them.
NAMES = """
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
    rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise
    shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept
    sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt
    clone fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock
    fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink
    readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid
    syslog getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups
    setgroups setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid capget capset rt_sigpending
    rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib personality ustat statfs fstatfs
    sysfs getpriority setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall munlockall vhangup
    modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2
    swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module delete_module
    get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid readahead
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr
    lremovexattr fremovexattr tkill time futex sched_setaffinity sched_getaffinity set_thread_area io_setup
    io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old
    epoll_wait_old remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create
    timer_settime timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime clock_getres
    clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open
    mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl
    ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat
    fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll
    unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages utimensat epoll_pwait
    signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2
    epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init
    fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu
    process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom
    memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2
    pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq - - - - - - - - - - - - - - - - - - - - - - - - - -
    - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - -
    - - - - - - - pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
    fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise
    epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self
    memfd_secret process_mrelease futex_waitv set_mempolicy_home_node
""".split()  # "-": no such number


def name_of(number: int) -> str:
    """The name, or the number itself of a call that is newer than this list."""
    known = NAMES[number] if number < len(NAMES) else "-"
    return known if known != "-" else f"syscall_{number:#x}"


# ---------------------------------------------------------------- imports
CAUSES = [cause.name.lower() for cause in Cause]
OPERATIONS = ["", *(operation.name.lower() for operation in Operation)]
LARGEST = np.uint64(2**62)
CALL_BITS, CAUSE_BITS, MODULE_BITS, MOUNT_BITS = 12, 4, 20, 16  # of a key
ERRORS = 4096

Columns = dict[str, dict[str, Any]]


def import_rows_of(file: RankFile) -> tuple[Rows, Rows, Rows, list[str]]:
    """The rows of modules, of system calls and of paths, and the paths: copied, before strings are looked at."""
    modules = [part.rows.copy() for part in file.parts(ChunkKind.MODULES)]
    calls = [part.rows.copy() for part in file.parts(ChunkKind.SYSTEM_CALLS)]
    paths, texts = file.paths()
    module_rows = np.concatenate([np.zeros(0, rank_file.MODULE), *modules])
    call_rows = np.concatenate([np.zeros(0, rank_file.SYSTEM_CALL), *calls])
    return module_rows, call_rows[(call_rows["key"] != 0) & (call_rows["calls"] != 0)], paths, texts


def import_columns(
    rows: tuple[Rows, Rows, Rows, list[str]], file: RankFile, clock: Clock, strings: Sequence[str], last_ticks: int
) -> Columns:
    """The columns of the tables of imports."""
    modules, calls, paths, texts = rows
    tables: Columns = {}
    if len(modules):
        tables["modules"] = _modules(modules, file, clock, strings, last_ticks)
    if len(calls):
        mounts = _mounts(calls, file, strings)
        tables["system_calls"] = _system_calls(calls, clock, mounts)
        named = [mount for mount in mounts if mount[0]]
        if named:
            places, types = _own_words([mount[0] for mount in named]), _own_words([mount[1] for mount in named])
            tables["mounts"] = {"mount": places, "fs_type": types}
    if len(paths):
        tables["paths"] = _paths(paths, texts)
    method = _method(file, calls, strings)
    return {**tables, "calls_method": method} if method else tables


def _own_words(texts: Sequence[str]) -> Words:
    values = sorted(set(texts)) or [""]
    place = {text: number for number, text in enumerate(values)}
    return Words(np.array([place[text] for text in texts], np.int32), values)


def _modules(rows: Rows, file: RankFile, clock: Clock, strings: Sequence[str], last_ticks: int) -> dict[str, Any]:
    if int(rows["name"].max()) >= len(strings):
        raise BadFile(f"{file.path}: string id {int(rows['name'].max())}, but there are only {len(strings)}")
    ended = (rows["flags"] & ModuleFlag.ENDED) != 0
    since = clock.unix_ns(last_ticks) - clock.unix_ns(rows["begin_ticks"])
    wall = np.where(ended, _ns(rows["wall_ticks"], clock), np.maximum(since, 0))
    return {
        "module": np.arange(1, len(rows) + 1, dtype=np.int64),
        "parent": rows["parent"].astype(np.int64),
        "name": Words(rows["name"].astype(np.int32), list(strings)),
        "thread": rows["thread"].astype(np.int64),
        "begin_ns": clock.unix_ns(rows["begin_ticks"]) - np.int64(min(int(file.header["started_realtime_ns"]), 2**61)),
        "wall_ns": wall,
        "self_wall_ns": _ns(rows["self_wall_ticks"], clock),
        "cpu_ns": _signed(rows["cpu_ns"]),
        "self_cpu_ns": _signed(rows["self_cpu_ns"]),
        "failed": (rows["flags"] & ModuleFlag.FAILED) != 0,
        "shared_objects": rows["shared_objects"].astype(np.int64),
        "ended": ended,
    }


def _system_calls(rows: Rows, clock: Clock, mounts: list[tuple[str, str, int]]) -> dict[str, Any]:
    key = rows["key"]
    numbers = _bits(key, MODULE_BITS + CAUSE_BITS, CALL_BITS)
    place = {string: at for at, (_, _, string) in enumerate(mounts)}
    mount = np.array([place[int(bit)] for bit in _bits(key, 36, MOUNT_BITS)], np.int32)
    known, codes = np.unique(numbers, return_inverse=True)
    return {
        "module": _bits(key, 0, MODULE_BITS),
        "cause": Words(np.minimum(_bits(key, MODULE_BITS, CAUSE_BITS), len(CAUSES) - 1).astype(np.int32), CAUSES),
        "call": Words(codes.astype(np.int32), [name_of(int(number)) for number in known]),
        "mount": Words(mount, [mount[0] for mount in mounts]),
        "calls": _signed(rows["calls"]),
        "failed": _signed(rows["failed"]),
        "missing": _signed(rows["missing"]),
        "total_ns": _ns(rows["ticks"], clock),
        "bytes": _signed(rows["bytes"]),
    }


def _mounts(rows: Rows, file: RankFile, strings: Sequence[str]) -> list[tuple[str, str, int]]:
    """Mount point, type of file system and string id of what the calls went to."""
    mounts = []
    for string in np.unique(_bits(rows["key"], 36, MOUNT_BITS)).tolist():
        if string >= len(strings):
            raise BadFile(f"{file.path}: string id {string}, but there are only {len(strings)}")
        fs_type, _, place = strings[string].partition(" ")
        mounts.append((place, fs_type, string))
    return mounts


def _paths(rows: Rows, texts: list[str]) -> dict[str, Any]:
    results, codes = np.unique(rows["result"], return_inverse=True)
    return {
        "module": rows["module"].astype(np.int64),
        "cause": Words(np.minimum(rows["cause"], len(CAUSES) - 1).astype(np.int32), CAUSES),
        "operation": Words(
            np.where(rows["operation"] < len(OPERATIONS), rows["operation"], 0).astype(np.int32), OPERATIONS
        ),
        "path": _own_words(texts),
        "result": Words(codes.astype(np.int32), [_result(int(number)) for number in results]),
        "times": _signed(rows["times"]),
        "bytes": _signed(rows["size_bytes"]),
    }


def _result(number: int) -> str:
    return errno.errorcode.get(number, f"E{number}") if number else "ok"


def _method(file: RankFile, calls: Rows, strings: Sequence[str]) -> dict[str, Any]:
    """One row where system calls were asked for."""
    header = file.header
    if int(header["imports_mode"]) not in (ImportsMode.CALLS, ImportsMode.PATHS):
        return {}
    number, note = int(header["calls_method"]), int(header["calls_note"])
    method = CallsMethod(number).name.lower() if number in set(CallsMethod) else "none"
    lost = {name: int(header[f"lost_{there}"]) for name, there in LOST.items()}
    seen = float(calls["calls"].astype(np.float64).sum())
    why = strings[note] if note < len(strings) else ""
    share = seen / (seen + lost["lost_calls"]) if method == "dispatch" and seen and not why else None
    row: dict[str, Any] = {"method": method, "note": why, "seen_share": share}
    row |= {name: min(value, 2**62) for name, value in lost.items()} | {"loader_calls": int(header["loader_calls"])}
    return {name: _own_words([v]) if isinstance(v, str) else [v] for name, v in row.items()}


LOST = {"lost_calls": "system_calls", "lost_paths": "paths", "lost_modules": "modules"}


def import_notes(file: RankFile, strings: Sequence[str]) -> list[Note]:
    """What was not seen of imports."""
    header, where = file.header, str(file.path)
    sentences = {
        "modules": "imported modules did not fit: what they did counts for the modules that import them",
        "system_calls": "system calls did not fit",
        "paths": "uses of paths did not fit",
    }
    notes = [
        Note(f"{int(header[f'lost_{what}'])} {text} (raise --size)", Severity.WARNING, where)
        for what, text in sentences.items()
        if header[f"lost_{what}"]
    ]
    why = int(header["calls_note"])
    if 0 < why < len(strings):
        notes.append(Note(f"system calls: {strings[why]}", Severity.NOTE, where))
    return notes


def _bits(keys: Any, first: int, count: int) -> Any:
    return ((keys >> np.uint64(first)) & np.uint64((1 << count) - 1)).astype(np.int64)


def _ns(ticks: Any, clock: Clock) -> Any:
    return np.minimum(ticks * clock.ns_per_tick, float(LARGEST)).astype(np.int64)


def _signed(values: Any) -> Any:
    return np.minimum(values.astype(np.uint64), LARGEST).astype(np.int64)
