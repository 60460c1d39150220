"""The timeline of lake tables: instants, the versions that they make, and the branches that hold these."""
