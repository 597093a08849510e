"""Packaging of tf_compat_lossscale; the settings of tools are in pyproject."""

import pathlib
import re

import setuptools

_HERE = pathlib.Path(__file__).resolve().parent


def _version() -> str:
  text = (_HERE / "tf_compat_lossscale" / "_version.py").read_text("utf-8")
  return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)


# Keras 2 on TensorFlow 2.16 and later; before that it is in TensorFlow itself.
_KERAS = ["tf_keras>=2.16"]
_BENCH = ["rich>=13"]
_PLOT = ["matplotlib>=3.7"]
_MIGRATE = ["libcst>=1.1"]
_LINT = ["mypy==2.4.1", "ruff==0.14.5"]
_PACKAGE = ["build>=1.0"]
_TEST = [
  "hypothesis>=6.80",
  "pytest>=7.4",
  "pytest-xdist>=3.3",
  "tf_slim>=1.1",
  *_BENCH,
  *_MIGRATE,
]

setuptools.setup(
  name="tf_compat_lossscale",
  version=_version(),
  description=(
    "TensorFlow's deprecated loss-scaling API (tf.compat.v1.mixed_precision), "
    "standing on its own."
  ),
  long_description=(_HERE / "README.md").read_text("utf-8"),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  license_files=["LICENSE"],
  packages=setuptools.find_packages(include=["tf_compat_lossscale*"]),
  package_data={
    "tf_compat_lossscale": ["py.typed", "legacy/_site/sitecustomize.py"]
  },
  python_requires=">=3.10",
  install_requires=["absl-py>=1.0", "tensorflow>=2.12"],
  extras_require={
    "bench": _BENCH,
    "keras": _KERAS,
    "lint": _LINT,
    "migrate": _MIGRATE,
    "plot": _PLOT,
    "test": _TEST,
    "dev": _LINT + _PACKAGE + _PLOT + _TEST,
  },
  entry_points={
    "console_scripts": ["tf-lossscale = tf_compat_lossscale.cli.main:main"],
  },
  classifiers=[
    "Development Status :: 4 - Beta",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3 :: Only",
    "Programming Language :: Python :: 3.10",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Typing :: Typed",
  ],
  keywords=(
    "tensorflow loss-scale mixed-precision float16 checkpoint legacy compat.v1"
  ),
)
