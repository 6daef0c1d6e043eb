"""The four dialects. Each is a module with `read`, an `Emitter` and `error_body`."""
