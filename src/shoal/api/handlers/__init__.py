"""What each route does, a module for each kind of resource."""
