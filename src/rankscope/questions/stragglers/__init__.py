"""Which rank is late, in what, and why."""
