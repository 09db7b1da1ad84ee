"""What members decide for the whole organization, its data taken out, and its end."""
