"""Money: what there is, how it comes in, what was billed, and what things cost."""
