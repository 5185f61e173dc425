"""What budgets, or numbers of heads, would give: choose, cut and repair, before anything is trained."""
