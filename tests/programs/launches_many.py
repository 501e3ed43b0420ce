"""Starts many short-lived ranks, some at a time, with the variables of torchrun: launches_many.py RANKS COMMAND…"""

import os
import subprocess
import sys

AT_A_TIME = 32

ranks, command = int(sys.argv[1]), sys.argv[2:]
running: list[subprocess.Popen[bytes]] = []
for rank in range(ranks):
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    own = {name: str(value) for name, value in told.items()}
    running.append(subprocess.Popen(command, env={**os.environ, **own, "TORCHELASTIC_RUN_ID": "many"}))
    if len(running) == AT_A_TIME:
        running.pop(0).wait()
sys.exit(max(process.wait() for process in running))
