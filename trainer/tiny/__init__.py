"""The tiny tool-calling model that the demo and end-to-end tests run on, and all that rebuilds it."""
