"""Single events of traces, and their sums."""
