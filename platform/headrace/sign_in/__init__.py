"""Signing in: django-allauth, and what this house asks of it."""
