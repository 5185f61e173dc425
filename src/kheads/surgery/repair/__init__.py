"""Repair: refits what a cut has left, so that the smaller model's residual stream follows the original's."""
