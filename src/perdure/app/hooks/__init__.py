"""Runs the operator's hooks: programs in the home, and functions of installed packages."""
