"""How versions end: what savepoints keep, and the removal of files and metadata that nobody needs any more."""
