"""Credit by its sources: grants and what burns them, top-ups, recharges, warnings."""
