"""Makes what runs jobs."""
