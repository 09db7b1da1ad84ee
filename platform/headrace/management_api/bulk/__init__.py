"""Files, batches and summarisation jobs of a project."""
