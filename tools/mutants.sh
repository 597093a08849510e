#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tools/mutants.py in the virtual environment DIR, which gets mutmut if it
# has none. What follows DIR goes to tools/mutants.py.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(cd "$1" && pwd)
shift
if ! "$dir/bin/python" -c "import mutmut" 2>/dev/null; then
  "$dir/bin/python" -m pip install -qq --disable-pip-version-check -e ".[mutants]"
fi
export PATH="$dir/bin:$PATH"
exec "$dir/bin/python" tools/mutants.py "$@"
