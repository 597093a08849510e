#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests on every supported TensorFlow release, each in an environment of
# its own (.venv-RELEASE), to the end whatever fails, and sums up.
#
#   tools/matrix.sh [RELEASE...]
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/releases.sh
if (($#)); then RELEASES=("$@"); fi
failed=()
for release in "${RELEASES[@]}"; do
  echo "== TensorFlow $release"
  tools/venv.sh ".venv-$release" "$release" test &&
    tools/test.sh ".venv-$release" -q ||
    failed+=("$release")
done
if ((${#failed[@]})); then
  echo "Failed on TensorFlow ${failed[*]}" >&2
  exit 1
fi
echo "Passed on TensorFlow ${RELEASES[*]}"
