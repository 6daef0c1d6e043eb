"""A record of very many sessions."""
