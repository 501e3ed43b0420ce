"""Our own files: what a recorded process left, finished, cut short or still being written."""
