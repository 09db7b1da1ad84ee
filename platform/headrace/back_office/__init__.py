"""The back office: Django's admin, read only, in a process of its own."""
