"""Looks MPI's functions up by name in the library it has opened privately, as some libraries do, and sums with them.

mpi_by_name.py PATH-OF-LIBMPI CALLS
"""

import ctypes
import os
import sys

path, calls = sys.argv[1], int(sys.argv[2])
mpi = ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_LOCAL)
if hasattr(mpi, "ompi_mpi_comm_world"):
    names = ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum")
    world, integer, plus = (ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name))) for name in names)
else:
    world, integer, plus = ctypes.c_int(0x44000000), ctypes.c_int(0x4C000405), ctypes.c_int(0x58000003)
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
for _ in range(calls):
    given, got = ctypes.c_int(rank.value + 1), ctypes.c_int()
    mpi.MPI_Allreduce(ctypes.byref(given), ctypes.byref(got), 1, integer, plus, world)
    assert got.value == size.value * (size.value + 1) // 2, got
version = ctypes.c_int()
mpi.MPI_Get_version(ctypes.byref(version), ctypes.byref(ctypes.c_int()))  # not one of those that are recorded
mpi.MPI_Finalize()
os.write(1, f"rank {rank.value}: {calls} sums\n".encode())  # in one piece, whoever else prints
