"""The nouns: sites, what stays, constraints; and `select`."""
