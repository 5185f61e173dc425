"""What a model costs, and statistics over seeds."""
