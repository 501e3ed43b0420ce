"""One file per form: each turns tables into text and knows nothing of where they come from."""
