"""Django's place for the commands of the house."""
