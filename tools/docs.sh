#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the documentation into site/ in the virtual environment DIR, which needs
# the extra [docs] and no TensorFlow: the reference is read off the sources.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/environments.sh
dir=$1
# Of pyproject.toml the settings of tools do not count, as in tools/venv.sh.
stamp=$(sed -n '/^\[project/,/^\[tool\.pytest/p' pyproject.toml | sha256sum)
if [[ $(cat "$dir/.made-of" 2>/dev/null) != "$stamp" ]]; then
  echo "Setting up $dir"
  if ! make_environment "$dir" "${PYTHON:-python3}" -e ".[docs]"; then
    echo "tools/docs.sh: cannot install the extra [docs], mkdocs-material and mkdocstrings: see the error above" >&2
    exit 2
  fi
  echo "$stamp" >"$dir/.made-of"
fi
# Material announces MkDocs 2, which the extra does not allow, in many lines.
NO_MKDOCS_2_WARNING=1 "$dir/bin/mkdocs" build --clean --strict
if grep -rlE --include='*.html' '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//' site; then
  echo "tools/docs.sh: these pages load something from another host" >&2
  exit 1
fi
echo "Built site/index.html"
