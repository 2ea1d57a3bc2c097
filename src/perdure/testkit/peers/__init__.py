"""Provides chat platforms for tests: real servers and imitations by others, each a process on
loopback.

A peer has two halves. The server is a process, which is started on a free port and is stopped with
all its children. The control client plays the people on that platform and looks at what they see.
It uses the peer's own control interface and none of the adapter's code, so a test compares two
independent readings of the same platform.
"""
