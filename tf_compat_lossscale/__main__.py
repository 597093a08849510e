"""Runs the command line: python -m tf_compat_lossscale"""

import sys

from tf_compat_lossscale import cli

sys.exit(cli.main())
