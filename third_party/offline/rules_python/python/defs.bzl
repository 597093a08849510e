# SPDX-License-Identifier: Apache-2.0
"""Bazel's own rules, under the names that rules_python gives them."""

py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
