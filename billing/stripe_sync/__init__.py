"""Stripe: what we tell it and what it tells us. Nothing else of ours imports `stripe`.

Our books are the truth, Stripe is a projection of them and the way that money comes in. Every call
to it happens outside of transactions and is driven by a row, so a crash between neither loses nor
doubles anything. Modules that import the heavy client are imported when first needed.
"""
