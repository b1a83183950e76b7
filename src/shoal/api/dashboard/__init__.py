"""The dashboard: pages for people, served at `/` by `shoal serve`. It reads and changes what the API does."""
