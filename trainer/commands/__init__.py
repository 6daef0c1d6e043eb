"""The commands of `trainer`, one file each: thin readings of options."""
