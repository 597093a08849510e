# SPDX-License-Identifier: Apache-2.0
"""Nothing to fetch: Bazel's own rules need nothing."""

def py_repositories():
    """Does nothing."""
