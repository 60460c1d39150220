"""Jobs: what writers ask of a table. Those that wait at one moment are decided in turn, in one transaction."""
