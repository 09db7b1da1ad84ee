"""What is for sale, under which names, at which prices, and what prices would have come to.

Entered by `billing.facade` only.
"""
