"""The law of made-up traces lies beside the benchmarks that use it too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: some there have names of the standard library
