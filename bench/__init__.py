"""Measures Perdure against the smallest programs that could do the same work.

Every judged number is a ratio between two programs that are measured alternately in one run,
because the machine under them is shared and noisy. Sizes and start-up times are judged as they are.
"""
