# SPDX-License-Identifier: Apache-2.0
# Thin: what a target does is in tools/, and tool settings are in pyproject.toml.
PYTHON ?= python3
VENV ?= .venv
export PYTHON

.PHONY: demo test machines coverage mutants matrix lint bazel bench gpu strangers package docs surface venv clean

demo: venv
	"$(VENV)/bin/python" examples/resume_digits.py

# ARGS goes to pytest.
test: venv
	tools/test.sh "$(VENV)" -m "not thorough and not machines" $(ARGS)

machines:
	tools/machines.sh .venv-machines

coverage: venv
	tools/coverage.sh "$(VENV)"

mutants: venv
	tools/mutants.sh "$(VENV)"

matrix:
	tools/matrix.sh $(RELEASES)

# Which private names of TensorFlow are there, and which are gone. ARGS=--all
# prints each.
surface: venv
	"$(VENV)/bin/python" tools/surface.py $(ARGS)

lint: venv
	tools/lint.sh "$(VENV)"

package: venv
	tools/package.sh "$(VENV)"

docs:
	tools/docs.sh .venv-docs

bazel: venv
	tools/bazel.sh "$(VENV)"

bench: venv
	"$(VENV)/bin/python" -m benchmarks

gpu: venv
	"$(VENV)/bin/python" tools/gpu.py

# STRANGERS is a folder of clones; ARGS may be --list, --only=NAME or --write.
strangers: venv
	"$(VENV)/bin/python" tools/strangers.py $(ARGS)

venv:
	tools/venv.sh "$(VENV)"

clean:
	rm -rf .venv .venv-* bazel-* .offline.bazelrc site build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage .coverage.* mutants
