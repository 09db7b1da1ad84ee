"""The pump: who works on which item, how many at once, and what becomes of it."""
