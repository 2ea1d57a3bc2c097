"""Holds the tool `files`, which reads, writes and searches the files of configured folders."""
