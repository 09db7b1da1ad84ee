"""The first page of an organization."""
