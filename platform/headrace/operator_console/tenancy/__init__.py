"""The operator's pages of tenants: all of them, and one with what is the operator's to set."""
