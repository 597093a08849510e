# SPDX-License-Identifier: Apache-2.0
# The TensorFlow releases that the project is tested on, newest last, and the
# newest Python 3.x that each has wheels for (the oldest is 3.10 for all).
RELEASES=(2.12.1 2.15.1 2.18.1 2.21.0)
NEWEST=${RELEASES[-1]}

newest_python() {
  case $1 in
    2.1[2-5].*) echo 11 ;;
    2.1[6-9].*) echo 12 ;;
    *) echo 13 ;;
  esac
}
