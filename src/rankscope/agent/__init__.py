"""What runs inside the Python of a recorded program: loaded by its file, with the standard library only."""
