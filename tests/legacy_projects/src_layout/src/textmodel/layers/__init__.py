from .bag import Bag
