# SPDX-License-Identifier: Apache-2.0
"""Runs `tf-lossscale` for Bazel; pip makes a command of its own."""

import sys

from tf_compat_lossscale.cli import main

if __name__ == "__main__":
  sys.exit(main.main())
