"""One file per question: each a function from a run's tables to one Table."""
