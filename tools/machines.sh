#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests that train on several processes, in the virtual environment DIR.
# Its TensorFlow is the newest that Horovod can be built for. Horovod is built
# once, with Gloo alone, if a C++ compiler and CMake are there; otherwise the
# tests that need Horovod are left out. What follows DIR goes to pytest.
#
#   tools/machines.sh DIR [ARGS...]
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift
tools/venv.sh "$dir" 2.12.1 test

horovod=0.28.1
if [[ $("$dir/bin/python" -m pip list --disable-pip-version-check 2>/dev/null) != *horovod*$horovod* ]]; then
  missing=()
  command -v "${CXX:-g++}" >/dev/null || missing+=("a C++ compiler (${CXX:-g++})")
  command -v cmake >/dev/null || missing+=("cmake")
  "$dir/bin/python" -c "import os, sysconfig; os.stat(sysconfig.get_paths()['include'] + '/Python.h')" 2>/dev/null ||
    missing+=("Python.h")
  if ((${#missing[@]})); then
    echo "tools/machines.sh: without Horovod $horovod, which needs $(printf '%s, ' "${missing[@]}" | sed 's/, $//') to be built" >&2
  else
    echo "Building Horovod $horovod in $dir: this takes minutes, once"
    # Horovod's setup imports TensorFlow, so it cannot be isolated from DIR.
    "$dir/bin/python" -m pip install -qq --disable-pip-version-check setuptools wheel packaging
    # Its copy of Gloo asks for a CMake that CMake 4 no longer stands in for.
    CMAKE_POLICY_VERSION_MINIMUM=3.5 CMAKE_TOOLCHAIN_FILE=$PWD/tools/horovod.cmake HOROVOD_DEBUG=1 HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
      HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_CPU_OPERATIONS=GLOO \
      "$dir/bin/python" -m pip install -qq --disable-pip-version-check \
      --no-build-isolation "horovod==$horovod"
  fi
fi
# A file's tests share launches, so one worker runs a file.
# The launchers of Horovod and MPI look for programs on PATH.
PATH=$(cd "$dir/bin" && pwd):$PATH tools/test.sh "$dir" --dist loadfile -m machines "$@"
