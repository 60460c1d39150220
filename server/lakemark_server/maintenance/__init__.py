"""What the service does without being asked: cleaning, folding, lost writers, dropped tables, expired names."""
