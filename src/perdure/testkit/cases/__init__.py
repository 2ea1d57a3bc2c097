"""Holds a case for each built-in platform: the platform with the test server ("peer") that stands
for it.

Nothing here imports an adapter. A case writes the section of the configuration that its peer needs,
and is given a function that makes a platform from it.
"""
