"""Implements the ports of what is kept and read: history, files, the audit."""
