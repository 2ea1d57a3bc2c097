"""Keeps conversations and their sessions: where they live, where they moved, and what was
summarised."""
