"""Runs `perdure serve`, from the first line that it prints to its exit code."""
