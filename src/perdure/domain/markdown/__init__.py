"""Markdown as agents write it: read once, cut for a platform, shown half-written, put in its words.

Nothing is gathered here, so that counting and cutting characters does not load the parser.
"""
