"""What is done to a model: gates, removal, adoption of unknown classes, rebuilding what was saved."""
