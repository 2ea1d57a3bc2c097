"""Holds the packages that connect Perdure to chat platforms, one package for each platform."""
