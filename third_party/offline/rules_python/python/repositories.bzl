"""Nothing to fetch: Bazel's own rules need nothing."""

def py_repositories():
    """Does nothing."""
