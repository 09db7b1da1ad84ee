"""The audit log: who did what, from where, and whether anybody changed it since."""
