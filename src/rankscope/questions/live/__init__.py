"""What a running job is doing now, and whether it hangs."""
