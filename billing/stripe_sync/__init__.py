"""Stripe: what we tell it and what it tells us. Nothing else of ours imports `stripe`."""
