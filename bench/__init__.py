"""Measures the cost of the frontier and of crawls: `python -m bench`. Speed is judged here and never in a test."""
