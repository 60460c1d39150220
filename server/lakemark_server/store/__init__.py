"""What every domain keeps in the store by the same rules: keys, ids, mutations, answers to requests, leases."""
