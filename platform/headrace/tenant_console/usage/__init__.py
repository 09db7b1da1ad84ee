"""Usage: charts of what was used, the requests behind them, and each one's receipt."""
