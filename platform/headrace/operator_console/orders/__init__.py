"""What operators want changed: placed and signed by the web process, carried out by a worker."""
