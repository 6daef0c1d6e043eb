"""Trust: the certificate authority, the bundle, session keys, and the environment a harness process needs."""
