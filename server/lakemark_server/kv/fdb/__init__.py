"""The store on FoundationDB: what only this backend needs."""
