# SPDX-License-Identifier: Apache-2.0
"""What a WORKSPACE needs that depends on this repository."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")

def tf_compat_lossscale_deps():
    """Fetches the rules, unless the WORKSPACE has some already.

    `py_repositories()` of rules_python comes after that: it cannot be loaded
    before rules_python is there.
    """
    maybe(
        http_archive,
        name = "rules_cc",
        sha256 = "458b658277ba51b4730ea7a2020efdf1c6dcadf7d30de72e37f4308277fa8c01",
        strip_prefix = "rules_cc-0.2.16",
        url = "https://github.com/bazelbuild/rules_cc/releases/download/0.2.16/rules_cc-0.2.16.tar.gz",
    )
    maybe(
        http_archive,
        name = "rules_python",
        sha256 = "7ae25c0d3b52124fffe199a34520f43e496f4027d59452df70184eced23b96ef",
        strip_prefix = "rules_python-1.8.1",
        url = "https://github.com/bazel-contrib/rules_python/releases/download/1.8.1/rules_python-1.8.1.tar.gz",
    )
