"""The studies that come with rankscope; a new one is one file and one line here."""

from __future__ import annotations

from rankscope.studies.allreduce import STUDY as ALLREDUCE
from rankscope.studies.plan import Study
from rankscope.studies.startup import STUDY as STARTUP

STUDIES: dict[str, Study] = {study.name: study for study in (STARTUP, ALLREDUCE)}
