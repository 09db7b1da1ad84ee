"""What all pages of both consoles share: who may see them, how they look, how numbers read."""
