"""Posts to Slack, and finds out what became of a post whose answer was lost."""
