# SPDX-License-Identifier: Apache-2.0
# The TensorFlow releases that the project is tested on, newest last, and the
# newest Python 3.x that each has wheels for: see tf_compat_lossscale/_releases.py.
_releases() {
  "${PYTHON:-python3}" tf_compat_lossscale/_releases.py "$@"
}
read -ra RELEASES < <(_releases)
NEWEST=${RELEASES[-1]}

newest_python() {
  _releases "$1"
}
