"""Usage as reports see it: rollups by hour, buckets of any width, single requests."""
