"""A process whose threads the recorder never met forks after CUDA's start: does its child keep the thread state?"""

import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
device = ctypes.c_int()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
print("parent holds the GIL:", ctypes.pythonapi.PyGILState_Check(), flush=True)
child = os.fork()
if child == 0:
    held = ctypes.pythonapi.PyGILState_Check()
    print("child holds the GIL:", held, flush=True)
    os._exit(0 if held else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
