"""Measurements of Perdure against the least that could do the same work.

Every number that is judged is a ratio between two programs measured in turns in one run, because
the machine under them is shared and noisy; sizes and start-up times are judged as they are.
"""
