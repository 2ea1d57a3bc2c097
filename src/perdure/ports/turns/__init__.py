"""Describes the ports through which messages become turns and turns are run."""
