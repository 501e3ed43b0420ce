"""How quantities grow with the size of the job."""
