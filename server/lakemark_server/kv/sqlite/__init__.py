"""The store on SQLite: what only this backend needs."""
