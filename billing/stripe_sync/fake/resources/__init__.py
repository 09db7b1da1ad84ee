"""Stripe's resources, a module a family: each has the handlers of its routes in ROUTES."""
