"""Tables that look after themselves: what should be rewritten, why not, and who does it when (docs/management.md)."""
