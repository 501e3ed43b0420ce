"""Which rank this process is, by the variables of whoever started it."""

from __future__ import annotations

import os

RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID", "RANK", "SLURM_PROCID")
WORLD = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE", "WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS")
LOCAL_WORLD = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "LOCAL_WORLD_SIZE")
LOCAL = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "LOCAL_RANK", "SLURM_LOCALID")


def first(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)


def rank() -> int:
    return first(RANK, 0)


def world() -> int:
    return first(WORLD, 1)


def local_rank() -> int:
    return first(LOCAL, rank())


def local_world() -> int:
    return first(LOCAL_WORLD, world())


def share_devices(devices: int) -> None:
    """NCCL refuses two ranks of one host on a device: where there are too few, each says that it is a host of its own.
    It then sends by sockets, which is slow; where every rank has a device it is left alone."""
    if local_world() <= devices:
        return
    os.environ.setdefault("NCCL_HOSTID", f"{os.uname().nodename}-{rank()}")
    if world() == local_world():
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
