#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the BUILD files, builds all targets, and runs the tests with the tag
# "smoke" and the example workspace under Bazel, without a network, on the Python
# of the virtual environment DIR.
# Installs what is missing: Bazel from Debian, buildifier from npm.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(cd "$1" && pwd)
buildifier=8.2.1

if ! command -v bazel >/dev/null; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "tools/bazel.sh: needs Bazel: install bazel-bootstrap (Debian), bazelisk or bazel" >&2
    exit 2
  fi
  export DEBIAN_FRONTEND=noninteractive
  install=(apt-get install -yqq bazel-bootstrap)
  "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}"; }
fi
if [[ ! -x $dir/node_modules/.bin/buildifier ]]; then
  if ! command -v npm >/dev/null; then
    echo "tools/bazel.sh: needs buildifier, which npm has: install npm" >&2
    exit 2
  fi
  npm install --silent --no-save --prefix "$dir" "@bazel/buildifier@$buildifier" >/dev/null
fi

# A Python with all that DIR has but this package, which is found there whether
# or not a target depends on it: a .pth file is not followed into others.
site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
bare=$dir/bazel
"$dir/bin/python" -m venv --without-pip --clear "$bare"
echo "$site" >"$("$bare/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
export PATH="$bare/bin:$PATH"
# Nothing is left behind: no server, and no links in the checkout.
flags=(--config=offline --noshow_progress --symlink_prefix=/)
# Two at a time: TensorFlow is heavy.
test=(bazel --batch test "${flags[@]}" --local_test_jobs=2)
mapfile -t files < <(git ls-files '*BUILD' '*.bzl' '*.bazel' '*WORKSPACE')
"$dir/node_modules/.bin/buildifier" -mode=check -lint=warn "${files[@]}"
"${test[@]}" --test_tag_filters=smoke //...  # Builds all other targets, too.
cd examples/bazel_consumer
"${test[@]}" //...
bazel --batch run "${flags[@]}" //:train
