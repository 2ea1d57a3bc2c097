"""Parses the command line, calls the app or a running node, and prints the answer."""
