"""Tags and filters of the kit."""
