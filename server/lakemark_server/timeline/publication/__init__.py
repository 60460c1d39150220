"""How instants end, inside one transaction of the store: in versions of one or several tables, or rolled back."""
