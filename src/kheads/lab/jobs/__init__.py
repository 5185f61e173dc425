"""One run from what a user asked for to a saved model and its record."""
