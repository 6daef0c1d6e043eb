"""Harnesses: unmodified programs as data, how each is installed, and the environment its process gets."""

from certs.harnesses.installer import DEFAULT_ROOT, find, install
from certs.harnesses.launch import environment, leftovers
from certs.harnesses.table import SHIPPED, Harness, HarnessError, get, load

__all__ = [
    "DEFAULT_ROOT", "SHIPPED", "Harness", "HarnessError", "environment", "find", "get", "install", "leftovers", "load",
]  # fmt: skip
