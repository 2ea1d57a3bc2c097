"""Orders jobs, and shows them."""
