"""Tasks, rollouts, rewards, sequences, GRPO, weight export and weight push. Reads the record, never the live side."""
