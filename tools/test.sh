#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests in the virtual environment DIR; what follows goes to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift
exec "$dir/bin/python" -m pytest -n 2 "$@"
