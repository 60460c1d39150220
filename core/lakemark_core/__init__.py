"""What client and service share: types, schemas and their evolution, predicates, errors, messages of the protocol."""
