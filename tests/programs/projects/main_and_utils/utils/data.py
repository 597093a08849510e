import numpy as np


def load(n, features=4):
    x = np.linspace(0., 1., n * features).reshape(n, features)
    return x.astype(np.float32), x.sum(axis=1).astype(np.float32)
