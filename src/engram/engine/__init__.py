"""Running experiments: the value that describes one, the straight line that runs it, and its storage."""
