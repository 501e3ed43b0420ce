"""Where a distributed training job spends its time."""

__version__ = "0.1.0"
