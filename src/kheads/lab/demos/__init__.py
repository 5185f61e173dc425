"""The stories that `kheads demo` tells."""
