"""Ways out of a saved model, one file a target."""
