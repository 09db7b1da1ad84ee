"""Limits: all that apply, how full they are, and quotas that are set, tried and lifted."""
