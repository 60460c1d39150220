"""File entries as columns, pages and parts, with pruning and planning over them. Knows no timeline and no service."""
