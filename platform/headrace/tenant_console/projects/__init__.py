"""Projects: where keys belong, with limits of their own."""
