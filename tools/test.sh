#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests in the virtual environment DIR; what follows goes to pytest.
# TMPDIR is a new folder, removed at the end: pytest's workers end without their
# exit handlers, so that TensorFlow's temporary files would stay.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
TMPDIR=$scratch "$dir/bin/python" -m pytest -n 2 --dist worksteal "$@"
