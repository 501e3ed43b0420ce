"""Training steps, their parts, and the phases around them."""
