"""Batches of requests, as OpenAI has them: read, run, written out, cancelled and expired."""
