"""Ranks that are started separately find one folder; two jobs never share one."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from rankscope.record.agreement import Claimant, is_same_job
from rankscope.record.place import Process, process

SHOW = ("sh", "-c", "echo $RANKSCOPE_DIR")


def rank_environment(rank: int, ranks: int, job: str) -> dict[str, str]:
    return {
        **os.environ,
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(ranks),
        "PMIX_NAMESPACE": job,
    }


@pytest.mark.parametrize("out", [(), ("--out", "chosen")])
def test_fifty_ranks_at_once_agree(rankscope: str, work: Path, out: tuple[str, ...]) -> None:
    processes = [
        subprocess.Popen(
            [rankscope, "run", *out, *SHOW],
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=rank_environment(rank, 50, "race"),
        )
        for rank in range(50)
    ]
    outputs = [process.communicate(timeout=60) for process in processes]
    [folder] = {output for output, _ in outputs}
    about = json.loads((Path(os.fsdecode(folder).strip()) / "run.json").read_text())
    assert about["expected_ranks"] == 50 and about["launcher"] == "openmpi"
    assert not any(errors for _, errors in outputs)


def under_new_launcher(rankscope: str, work: Path, job: str, *options: str, times: int = 1) -> list[str]:
    """Two ranks, started by a process of their own that stands for the launcher's daemon."""
    command = f"{rankscope} run --quiet {' '.join(options)} sh -c 'echo $RANKSCOPE_DIR'"
    names = "OMPI_COMM_WORLD_RANK={0} OMPI_COMM_WORLD_LOCAL_RANK={0} OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE={1}"
    ranks = [f"env {names.format(rank, job)} {command}" for rank in range(2)]
    if times > 1:  # a shell in each rank that starts the command several times
        ranks = [
            f'env {names.format(rank, job)} sh -c "{"; ".join([command.replace("$", chr(92) + "$")] * times)}"'
            for rank in range(2)
        ]
    done = subprocess.run(["sh", "-c", "; ".join(ranks) + "; true"], cwd=work, capture_output=True, text=True)
    return done.stdout.split()


def test_a_key_that_is_used_again(rankscope: str, work: Path) -> None:
    first = under_new_launcher(rankscope, work, "same")
    second = under_new_launcher(rankscope, work, "same")
    assert len(first) == len(second) == 2
    assert len(set(first)) == len(set(second)) == 1 and set(first) != set(second)


def test_a_folder_that_is_used_again(rankscope: str, work: Path) -> None:
    first = under_new_launcher(rankscope, work, "same", "--out", "prof")
    second = under_new_launcher(rankscope, work, "same", "--out", "prof")
    assert set(first) == {f"{work}/prof"} and set(second) == {f"{work}/prof-2"}


def test_several_commands_in_one_rank(rankscope: str, work: Path) -> None:
    folders = under_new_launcher(rankscope, work, "turns", times=3)
    assert len(folders) == 6 and folders[:3] == folders[3:] and len(set(folders)) == 3


def test_single_rank_always_gets_a_new_folder(rankscope: str, work: Path) -> None:
    environment = rank_environment(0, 1, "single")
    folders = {
        subprocess.run([rankscope, "run", *SHOW], cwd=work, env=environment, capture_output=True).stdout
        for _ in range(3)
    }
    assert len(folders) == 3


def claim(made_ns: int, host: str, identity: str = "1.1") -> str:
    return f"{made_ns}|{host}|{identity}|name"


def test_claims_of_other_hosts_are_judged_by_their_time() -> None:
    launcher = process(os.getpid())
    assert launcher
    asking = Claimant("key", "here", launcher, False)
    assert is_same_job(claim(launcher.started_ns + 10**9, "there"), asking)
    assert is_same_job(claim(launcher.started_ns - 30 * 10**9, "there"), asking)  # its daemon was faster
    assert not is_same_job(claim(launcher.started_ns - 120 * 10**9, "there"), asking)
    assert not is_same_job("damaged", asking)


def test_claims_of_this_host_are_judged_by_their_launcher() -> None:
    launcher, parent = process(os.getpid()), process(os.getppid())
    assert launcher and parent
    asking = Claimant("key", "here", launcher, False)
    long_ago_ns = launcher.started_ns - 10**12
    assert is_same_job(claim(long_ago_ns, "here", launcher.identity), asking)
    assert is_same_job(claim(long_ago_ns, "here", parent.identity), asking)  # a second daemon, still alive
    recycled = Process(parent.pid, parent.start_ticks + 1)
    assert not is_same_job(claim(long_ago_ns, "here", recycled.identity), asking)
