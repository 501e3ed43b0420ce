"""Where a job's metrics go: one file for each kind of destination, its library imported when it is asked for."""

REASONS = ("Connection refused", "Name or service not known", "timed out", "No route to host")
MOST_LETTERS = 300


def reason(text: str) -> str:
    """Why something was not delivered, in a line: libraries tell it in many."""
    known = next((reason_known for reason_known in REASONS if reason_known in text), "")
    return known.lower() or " ".join(text.split())[:MOST_LETTERS].rstrip(".")
