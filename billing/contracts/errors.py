"""The base of everything that billing raises on purpose."""


class BillingError(Exception):
    """Base of everything this package raises on purpose."""
