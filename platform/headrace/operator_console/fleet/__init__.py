"""The operator's page of engines: what they report every second, and what that costs."""
