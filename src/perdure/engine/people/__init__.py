"""Asks again who may speak and how often, and tells the operators what only they can mend."""
