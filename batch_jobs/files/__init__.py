"""Files of a project: taken in, kept within limits, read in ranges, swept away."""
