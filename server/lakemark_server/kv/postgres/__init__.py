"""The store on PostgreSQL: what only this backend needs."""
