"""What the operator sees and does in a browser: the fleet, models and prices, tenants, money."""
