"""Where JAX is not installed: as much of its tree as the agent looks at, around the library beside it."""

import ctypes
import os

import jaxlib  # noqa: F401

import jax._src.array
import jax._src.distributed
import jax._src.interpreters.pxla
import jax._src.monitoring  # noqa: F401

__version__ = "0.0.twin"
native = ctypes.CDLL(os.environ["XLA_TWIN"])
for name in ("load_program", "make_communicator"):
    getattr(native, name).restype = ctypes.c_void_p
native.start_program.argtypes = native.delete_program.argtypes = (ctypes.c_void_p,)
native.make_communicator.argtypes = (ctypes.c_char_p, ctypes.c_long)
native.communicate.argtypes, native.communicate.restype = (ctypes.c_void_p, ctypes.c_ulong), ctypes.c_long
