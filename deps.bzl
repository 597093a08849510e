# SPDX-License-Identifier: Apache-2.0
"""What a WORKSPACE needs that depends on this repository."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")

def tf_compat_lossscale_deps():
    """Fetches rules_python, unless the WORKSPACE has it already.

    `py_repositories()` of rules_python comes after that: it cannot be loaded
    before rules_python is there. It fetches what rules_python needs, such as a
    rules_cc. From 0.2 on, rules_cc needs repositories that no WORKSPACE gets by
    itself, so do not fetch another rules_cc before.
    """
    maybe(
        http_archive,
        name = "rules_python",
        sha256 = "7ae25c0d3b52124fffe199a34520f43e496f4027d59452df70184eced23b96ef",
        strip_prefix = "rules_python-1.8.1",
        url = "https://github.com/bazel-contrib/rules_python/releases/download/1.8.1/rules_python-1.8.1.tar.gz",
    )
