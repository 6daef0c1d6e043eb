"""The record: what every session said, exact to the token, in SQLite or PostgreSQL.

`Store` opens the database, `Recorder` writes, `Reader` reads. Nothing here imports mitmproxy or torch.
"""
