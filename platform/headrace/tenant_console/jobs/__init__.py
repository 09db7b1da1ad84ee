"""Batches and summarisation jobs: their list, each one, making them, and what they made."""
