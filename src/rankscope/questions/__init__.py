"""One file per question: each turns the tables of a run into a Table."""
