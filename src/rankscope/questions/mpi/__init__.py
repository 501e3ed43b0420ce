"""MPI calls: routines, message sizes, destinations."""
