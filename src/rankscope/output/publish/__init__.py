"""Where a job's metrics go: one file for each kind of destination, its library imported when it is asked for."""
