"""What a person sees: plain lines, JSON logs, the live display, the summary."""
