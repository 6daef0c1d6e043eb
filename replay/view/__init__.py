"""The record as web pages, on loopback and read-only: made on the server, with one small script for live updates."""
