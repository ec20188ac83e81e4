"""Where a registry's files lie: a directory, an object store, a repository of the Hub, or a read-only web server."""
