"""The operator's pages of models and prices: what is for sale, since when, and new prices."""
