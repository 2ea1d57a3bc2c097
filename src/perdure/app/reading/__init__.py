"""Reads what files say, and makes pictures fit for models. Libraries run in a child process."""
