"""Which launcher started us, from the variables that each of them sets."""

import os

import pytest

from rankscope.record.place import cleaned, find_place, launcher_process, process

CASES = {
    "openmpi": (
        "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=3 "
        "PMIX_NAMESPACE=prterun-node1-4701@1 SLURM_JOB_ID=7 SLURM_PROCID=0",
        (3, 1, 4),
        "prterun-node1-4701@1",
    ),
    "intelmpi": (
        "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 I_MPI_HYDRA_UUID=85120000-ff29 PMI_FD=9",
        (1, 1, 2),
        "85120000-ff29",
    ),
    "mpich": ("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 HYDI_CONTROL_FD=7 PMI_FD=9", (1, 0, 2), ""),
    "pals": (
        "PALS_APID=ab-12 PALS_RANKID=9 PALS_LOCAL_RANKID=3 PMI_RANK=9 PMI_SIZE=24 PBS_JOBID=1.x",
        (9, 3, 24),
        "ab-12",
    ),
    "slurm": (
        "SLURM_JOB_ID=99 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=8 PMI_RANK=5 PMI_SIZE=8",
        (5, 1, 8),
        "99-0",
    ),
    "flux": ("FLUX_TASK_RANK=2 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_SIZE=3 FLUX_JOB_ID=17", (2, 0, 3), "17"),
    "torchrun": (
        "TORCHELASTIC_RUN_ID=none RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500 "
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
        (1, 1, 2),
        "none-a-29500",
    ),
}

CASES["environment"] = (
    "RANK=1 WORLD_SIZE=4 MASTER_ADDR=job-master-0.space.svc MASTER_PORT=2",
    (1, None, 4),
    "job-master-0-2",
)


@pytest.mark.parametrize("launcher", CASES)
def test_launchers(launcher: str) -> None:
    text, numbers, job = CASES[launcher]
    place = find_place(dict(word.split("=") for word in text.split()))
    assert place.launcher == launcher
    assert (place.rank, place.local_rank, place.ranks) == numbers
    assert place.job == job
    assert place.shared


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", ""),  # no port: nobody could meet there
        ("RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", ""),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2", "slurm"),
        ("RANK=1 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2", "environment"),
        (
            "RANK=1 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
            "environment",
        ),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 PMIX_RANK=1 PMIX_NAMESPACE=x", "pmix"),
    ],
)
def test_variables_of_a_rank_beside_those_of_a_launcher(text: str, launcher: str) -> None:
    assert find_place(dict(word.split("=") for word in text.split())).launcher == launcher


def test_the_first_rank_may_call_its_own_host_localhost() -> None:
    ours = os.uname().nodename
    addresses = ("localhost", "127.0.0.1", "::1", ours, f"{ours}.some.domain")
    environments = [{"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "MASTER_ADDR": a} for a in addresses]
    assert len({find_place(environment).job for environment in environments}) == 1
    assert find_place({**environments[0], "MASTER_ADDR": "10.1.2.3"}).job == "10.1.2.3-1"


def test_batch_script_is_not_a_rank() -> None:
    place = find_place({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    assert not place.launcher and not place.shared and place.speaks


def test_launcher_process_is_the_parent_without_the_mark() -> None:
    found, between = launcher_process("A_VARIABLE_THAT_NOBODY_HAS")
    assert found is not None and found.pid == os.getppid() and not between


def test_process_start() -> None:
    found = process(os.getpid())
    assert found is not None and found.identity.startswith(f"{os.getpid()}.")
    assert process(2**22 + 1) is None


def test_cleaned() -> None:
    assert cleaned("prterun-vm-1@1") == "prterun-vm-1-1"
    assert cleaned("../..") == "run"
