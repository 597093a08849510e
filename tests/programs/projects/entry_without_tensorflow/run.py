#!/usr/bin/env python
"""Runs the experiment of a configuration file."""
import argparse
import json
import os

from trainer import engine

HERE = os.path.dirname(os.path.abspath(__file__))

if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--config', default='small')
    args = parser.parse_args()
    with open(os.path.join(HERE, 'configs', args.config + '.json')) as f:
        config = json.load(f)
    result = engine.run(config)
    for key in sorted(result):
        print(key, result[key])
