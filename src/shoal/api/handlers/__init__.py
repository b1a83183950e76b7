"""The handlers of the routes, one module per kind of resource."""
