"""How the work is shared out between the ranks, and what a pipeline of them loses."""
