"""API keys: what they may do, how they are made, rotated and revoked, and programs' accounts."""
