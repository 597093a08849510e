# SPDX-License-Identifier: Apache-2.0
"""Runs the test file that the first argument names, for Bazel's `py_test`."""

import os
import sys

import pytest

if __name__ == "__main__":
  sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
  sys.exit(pytest.main(sys.argv[1:]))
