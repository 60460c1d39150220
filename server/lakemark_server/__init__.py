"""The Lakemark service: domains over a transactional key-value store, and the gRPC surface."""
