"""Sessions of ten turns by real harnesses: what the model says, and the prompts that they make in three ways."""
