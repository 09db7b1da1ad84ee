"""What tenants see and do in a browser: usage, jobs, keys, limits, money, people."""
