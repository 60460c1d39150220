"""What every domain keeps in the store by the same rules: keys, ids, answers to requests, leases."""
