"""What the frontier costs, measured: `python -m bench`. Speed is judged here and never in a test."""
