import sys

from speech import model
from .train import train

if __name__ == '__main__':
    train(model.build(), int(sys.argv[1]) if sys.argv[1:] else 4)
