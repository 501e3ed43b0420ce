"""What ran, what was seen of it, and what recording it cost."""
