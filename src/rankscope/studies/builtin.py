"""The studies that come with rankscope; a new one is one file and one line here."""

from __future__ import annotations

from rankscope.studies.allreduce import STUDY as ALLREDUCE
from rankscope.studies.ddp import STUDY as DDP
from rankscope.studies.imports import STUDY as IMPORTS
from rankscope.studies.mpi import STUDY as MPI
from rankscope.studies.plan import Study
from rankscope.studies.startup import STUDY as STARTUP
from rankscope.studies.training import STUDY as TRAINING

ALL = (IMPORTS, STARTUP, ALLREDUCE, TRAINING, DDP, MPI)
STUDIES: dict[str, Study] = {study.name: study for study in ALL}
