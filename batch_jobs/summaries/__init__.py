"""Summaries of many documents: reading them, asking for them, merging, handing results out."""
