#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds sdist and wheel into dist/, by the virtual environment DIR, and installs
# each in a new environment. Tries the wheel with the TensorFlow of DIR and
# without TensorFlow; the sdist must install the same files.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(cd "$1" && pwd)
pip=("$dir/bin/python" -m pip --disable-pip-version-check)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

site_of() {  # Prints the folder that $1, a Python, finds packages in.
  "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

make_environment() {  # Makes an environment with $2.. in it in the folder $1.
  "$dir/bin/python" -m venv --without-pip "$1"
  "${pip[@]}" --python "$1/bin/python" install -qq "${@:2}"
}

try() {  # Runs the smoke test in the environment $1 with the arguments $2..
  cp tools/smoke.py "$scratch"
  (cd "$scratch" && "$1/bin/python" smoke.py "${@:2}")
}

rm -rf dist build/lib
"$dir/bin/python" -m build --outdir dist . >/dev/null
wheel=$(ls dist/*.whl)
sdist=$(ls dist/*.tar.gz)

echo "Trying $wheel"
make_environment "$scratch/wheel" --no-deps "$wheel"
# TensorFlow and its dependencies are those of DIR: installing them anew takes
# minutes. A .pth file is not followed into others, so the editable package of
# DIR stays out.
site_of "$dir/bin/python" >"$(site_of "$scratch/wheel/bin/python")/borrowed.pth"
try "$scratch/wheel"

echo "Trying $sdist"
make_environment "$scratch/sdist" --no-deps "$sdist"
for made in wheel sdist; do
  site=$(site_of "$scratch/$made/bin/python")
  # All files that pip installed, with their hashes; pip itself writes the rest.
  cut -d, -f1,2 "$site"/*.dist-info/RECORD |
    grep -vE '^\.\./|__pycache__|direct_url.json|/RECORD|/(INSTALLER|REQUESTED)' |
    sort >"$scratch/$made.txt"
done
[[ $(wc -l <"$scratch/wheel.txt") -gt 50 ]]
diff "$scratch/wheel.txt" "$scratch/sdist.txt"
echo "The sdist installs the files of the wheel: ok"

echo "Trying $wheel without TensorFlow"
make_environment "$scratch/bare" "$wheel"
try "$scratch/bare" --without-tensorflow
