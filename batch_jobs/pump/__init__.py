"""The pump: claims items of any tenants, runs them through the pipeline, writes what came of it."""
