# SPDX-License-Identifier: Apache-2.0
"""Runs the command line: python -m tf_compat_lossscale"""

import sys

from tf_compat_lossscale.cli import main

sys.exit(main.main())
