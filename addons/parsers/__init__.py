"""Reading replies: text in, reasoning, text and tool calls out."""
