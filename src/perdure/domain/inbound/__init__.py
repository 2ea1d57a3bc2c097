"""Describes what comes in from outside, in the words that all platforms share."""
