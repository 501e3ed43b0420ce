"""Studies: a matrix of jobs, each a recorded run, and what the matrix shows as a document."""
