"""What holds for all tests of the bridge."""

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)  # its threads wait for one another where cores are few
