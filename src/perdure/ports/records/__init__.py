"""Describes the ports that read what is stored, and the library of files."""
