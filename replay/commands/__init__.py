"""What `replay` can do, one file a command."""
