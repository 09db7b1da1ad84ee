"""Summaries of many documents: what is asked, how inputs are read and cut, how jobs are steered."""
