#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests in the virtual environment DIR; what follows goes to pytest.
# RUN_UNDER may have arguments of Python that run pytest under another program.
# TMPDIR is a new folder, removed at the end: pytest's workers end without their
# exit handlers, so that TensorFlow's temporary files would stay.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift
# Or each process would compile TensorFlow's modules anew, for four seconds.
unset PYTHONDONTWRITEBYTECODE
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Unquoted: several arguments, or none.
TMPDIR=$scratch "$dir/bin/python" ${RUN_UNDER:-} -m pytest -n 2 --dist worksteal "$@"
