"""Commands of the house: `manage.py <name>`."""
