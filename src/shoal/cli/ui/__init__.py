"""Output for people: plain lines, JSON logs, the live display, the summary."""
