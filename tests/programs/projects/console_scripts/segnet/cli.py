"""Command line tools."""
from __future__ import print_function

import argparse

import tensorflow as tf

from . import __version__
from .training.loop import fit


def train(argv=None):
    parser = argparse.ArgumentParser(prog='segnet-train')
    parser.add_argument('--steps', type=int, default=6)
    parser.add_argument('--loss-scale', type=float, default=None)
    args = parser.parse_args(argv)
    tf.logging.set_verbosity(tf.logging.ERROR)
    for line in fit(args.steps, args.loss_scale):
        print(line)


def info():
    print('segnet', __version__)
    print('session', hasattr(tf, 'Session'))
