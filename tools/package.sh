#!/usr/bin/env bash
# Builds wheel and sdist into dist/, by the virtual environment DIR, then
# installs each in a clean environment and tries it there.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
rm -rf dist build/lib
"$dir/bin/python" -m build --outdir dist . >/dev/null
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for package in dist/*.whl dist/*.tar.gz; do
  echo "Trying $package"
  "$dir/bin/python" -m venv --clear "$scratch/venv"
  "$scratch/venv/bin/python" -m pip install -qq --disable-pip-version-check "$package"
  cp tools/smoke.py "$scratch"
  (cd "$scratch" && venv/bin/python smoke.py)
done
