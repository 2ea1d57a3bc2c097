"""Provides peers that stand for Matrix in tests."""
