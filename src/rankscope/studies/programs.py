"""The programs that cells run: files in workloads/, which is no package.

They run in the job's own Python, which need not have rankscope: standard library, and the framework that is studied.
"""

import os


def path_of(workload: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "workloads", f"{workload}.py")
