"""A rank of a fast cell: leaves the square of a number times its place, in two steps with a pause between.

python squares.py NUMBER FOLDER [fail|hang|missing RANK]
"""

import json
import os
import sys
import time

NAMES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")
number, folder = int(sys.argv[1]), sys.argv[2]
rank = next((int(os.environ[name]) for name in NAMES if name in os.environ), 0)
path = os.path.join(folder, "results", f"{rank}.json")

if sys.argv[3:] and int(sys.argv[4]) == rank:
    if sys.argv[3] == "fail":
        sys.exit("RuntimeError: no luck today")
    if sys.argv[3] == "hang":
        time.sleep(1000)
    if sys.argv[3] == "missing":
        sys.exit(0)
if "SLURMD_NODENAME" in os.environ:
    os.write(1, f"rank {rank} on {os.environ['SLURMD_NODENAME']}\n".encode())
with open(f"{path}.half", "w") as file:
    file.write("[")
time.sleep(0.1)
with open(f"{path}.half", "w") as file:
    json.dump({"rank": rank, "value": number**2 * (rank + 1)}, file)
os.replace(f"{path}.half", path)
