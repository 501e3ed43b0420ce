"""What the GPUs do, and for how long they do nothing."""
