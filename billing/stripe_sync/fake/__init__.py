"""A stand-in for Stripe that speaks its API closely enough for the stock `stripe` client.

It ships with the product: a house without Stripe keys runs it, and the tests drive it. It imports
nothing else of ours and takes no real money. Start it with `python -m billing.stripe_sync.fake`.
"""
