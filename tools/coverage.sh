#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests in the virtual environment DIR, with those processes that they
# start, and reports which lines and branches of the package ran. Fails if a
# module of _REQUIRED has less than 95 %. What follows DIR goes to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift
required='tf_compat_lossscale/loss_scale.py,tf_compat_lossscale/loss_scale_optimizer.py,tf_compat_lossscale/gradients.py,tf_compat_lossscale/contrib.py,tf_compat_lossscale/checkpoint/*'
if ! "$dir/bin/python" -c "import coverage" 2>/dev/null; then
  echo "tools/coverage.sh: needs coverage: $dir/bin/pip install 'coverage>=7.10'" >&2
  exit 2
fi
export COVERAGE_FILE=$PWD/.coverage
rm -f .coverage .coverage.*
# These tests look at what a process imports, and coverage imports more.
others=(
  --deselect tests/cli/main_test.py::test_subcommands_load_when_used
  --deselect tests/programs/import_hooks_test.py::test_start_costs_no_tensorflow
)
status=0
RUN_UNDER="-m coverage run" tools/test.sh "$dir" -q "${others[@]}" "$@" ||
  status=$?
"$dir/bin/python" -m coverage combine -q
"$dir/bin/python" -m coverage report
echo "== The modules that need 95 %"
"$dir/bin/python" -m coverage report --include="$required" --fail-under=95
exit "$status"
