"""`tap matrix`: every harness of the table does one small task behind a real proxy, and the outcome is a table."""
