"""MPI calls of libraries that look MPI's functions up by name: an auditor of the dynamic loader gives them ours."""

import os

from rankscope.record.import_index import has_good_auditing
from rankscope.record.preload import LIBRARY

AUDITOR = os.path.join(os.path.dirname(LIBRARY), "librankscope_lookups.so")


def lookup_variables(environment: dict[str, str], added: dict[str, str]) -> dict[str, str]:
    """LD_AUDIT with ours behind those that are there already."""
    if lookup_problem():
        return {}
    there = (added.get("LD_AUDIT") or environment.get("LD_AUDIT", "")).split(":")
    return {"LD_AUDIT": ":".join([*(word for word in there if word not in ("", AUDITOR)), AUDITOR])}


def lookup_problem() -> str:
    """Why it cannot be done here, "" where it can."""
    if not has_good_auditing():
        return "--lookups needs glibc 2.35 or later: MPI calls that libraries look up by name are not recorded"
    if not os.path.exists(AUDITOR):
        return f"--lookups: there is no {AUDITOR}; reinstall rankscope"
    return ""
