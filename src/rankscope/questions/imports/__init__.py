"""What importing costs, why, and how that grows with the job."""
