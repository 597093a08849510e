#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment DIR with a TensorFlow release and this package
# in it, or leaves it as it is when it has both already.
#
#   tools/venv.sh DIR [TENSORFLOW_RELEASE [EXTRA]]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/environments.sh
source tools/releases.sh
dir=$1
release=${2:-$NEWEST}
extra=${3:-dev}

# What the environment is made of; when that changes, it is made anew. Of
# pyproject.toml the settings of tools do not count.
metadata=$(sed -n '/^\[project/,/^\[tool\.pytest/p' pyproject.toml)
stamp="$release $extra $(cat tools/{venv,environments}.sh - <<<"$metadata" | sha256sum)"
if [[ -x $dir/bin/python && $(cat "$dir/.made-of" 2>/dev/null) == "$stamp" ]]; then
  exit 0
fi

fits() {  # Whether $1 runs, and is a Python that the release has wheels for.
  "$1" -c "import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $newest))" 2>/dev/null
}

newest=$(newest_python "$release")
python=
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10; do
  if fits "$candidate"; then
    python=$candidate
    break
  fi
done
if [[ -z $python ]]; then
  echo "tools/venv.sh: TensorFlow $release needs Python 3.10 to 3.$newest, and none is on PATH: install one, or name it as PYTHON=…" >&2
  exit 2
fi

requirements=("tensorflow==$release" -e ".[$extra]")
case $release in
  2.1[2-5].*) ;;  # Keras 2 is in TensorFlow itself.
  *) requirements+=("tf_keras==${release%.*}.*") ;;
esac

# Says how far the installation is, in its own line of a terminal, until killed.
say_progress() {
  local end=$'\n' pause=30
  if [[ -t 1 ]]; then end=$'\r' pause=2; fi
  sleep 2 &>/dev/null
  while true; do
    printf '%s: %d s, %d MB on disk%s' "$dir" "$SECONDS" "$(du -sm "$dir" 2>/dev/null | cut -f1)" "$end"
    sleep "$pause" &>/dev/null
  done
}

echo "Setting up $dir: TensorFlow $release on $("$python" --version): 0.6 GB to download, 2.5 GB on disk"
say_progress &
trap "kill $! 2>/dev/null" EXIT
make_environment "$dir" "$python" "${requirements[@]}"
if [[ -t 1 ]]; then echo; fi
echo "$stamp" >"$dir/.made-of"
