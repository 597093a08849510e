# SPDX-License-Identifier: Apache-2.0
make_environment() {  # Makes the environment $1 of the Python $2, with the packages $3...
  rm -rf "$1"
  if command -v uv >/dev/null; then  # It takes a quarter of pip's CPU time.
    "$2" -m venv --without-pip "$1"
    # TensorBoard imports pkg_resources, of which later setuptools warn.
    uv pip install -q --python "$1/bin/python" pip "setuptools<80" "${@:3}"
  else
    "$2" -m venv "$1"
    # Python compiles the modules that are used; compiling all takes a minute more.
    "$1/bin/python" -m pip install -qq --disable-pip-version-check --no-compile "${@:3}"
  fi
}
