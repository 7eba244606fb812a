"""What every test holds: no region is left open, and no node is left behind."""

import gc
import os
import sys

if "AC2_PACKAGES" in os.environ:  # not installed: run_pytest.sh
    sys.path.insert(0, os.environ["AC2_PACKAGES"])
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ["AC2_PACKAGES"], os.environ.get("PYTHONPATH", "")])

import pytest
import torch

import ac2


def pytest_collection_finish():
    """Python's collector leaves out what importing made. Otherwise each collection looks through all of torch: 0.15 s, twice a test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    gc.collect()
    before = ac2.live_node_count()  # of a test that failed
    torch.manual_seed(0)
    yield
    assert not ac2.is_checkpoint_enabled(), "the test left a region open"
    gc.collect()
    assert ac2.live_node_count() == before, "the test left nodes behind"
