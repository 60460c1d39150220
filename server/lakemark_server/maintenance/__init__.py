"""What the service does on its own: cleaning, folding, and ending lost writers, dropped tables and expired names."""
