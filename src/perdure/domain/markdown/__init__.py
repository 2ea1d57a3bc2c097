"""Reads the Markdown that agents write, splits it for a platform, makes half-written text
presentable, and renders it as HTML or plain text.

This file imports nothing, so that code which only measures text (`units.py`) does not load the
rest.
"""
