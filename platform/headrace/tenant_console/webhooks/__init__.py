"""Webhooks: where events are posted to, with which secret, and what became of each."""
