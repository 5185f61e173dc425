"""Training with gates, and `prune`: the whole flow on one page."""
