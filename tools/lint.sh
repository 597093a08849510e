#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks style and the rules that a text search can check, in the virtual
# environment DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
"$dir/bin/ruff" check .
"$dir/bin/ruff" format --check .
"$dir/bin/mypy"
