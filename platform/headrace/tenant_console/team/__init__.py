"""Members of an organization and who is invited to it, from both sides of an invitation."""
