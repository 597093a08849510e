"""`tf-lossscale`, for Bazel; pip makes its own from pyproject.toml."""

import sys

from tf_compat_lossscale.cli import main as cli

if __name__ == "__main__":
  sys.exit(cli.main())
