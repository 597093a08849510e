# SPDX-License-Identifier: Apache-2.0
"""Bazel's own rules, under the names that rules_java gives them."""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_test = native.java_test
java_toolchain = native.java_toolchain
