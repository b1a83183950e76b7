"""Message brokers: their URIs and connections, shared by outputs (sinks/streams) and bridges (listen).

A broker's module imports its driver. Import it only where a connection is needed.
"""
