# ruff: noqa: E501
"""The distributed tests that are in torch's wheel, on the CPU: `gloo` (collectives, DDP) or `rpc`, two or four processes each test."""

import os
import sys
import tempfile

GROUP = sys.argv.pop(1)
os.environ.update(BACKEND="gloo", WORLD_SIZE="2", INIT_METHOD="env://", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
for folder in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

from torch.testing._internal.common_utils import run_tests  # noqa: E402

# Each test starts its processes anew, which import torch: these few of each kind.
GLOO = """
test_all_reduce_sum test_all_reduce_sum_async test_all_gather_object_default_pg test_all_to_all test_barrier test_broadcast
test_scatter test_isend test_send_recv_autograd_profiler test_DistributedDataParallel_requires_grad
test_ddp_join_model_equivalence test_monitored_barrier_gloo test_new_subgroups
""".split()
RPC = "test_async_add test_multi_rpc test_rref_forward_chain test_py_raise_in_user_func".split()

if GROUP == "gloo":
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class Gloo(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

    WANTED = [f"Gloo.{name}" for name in GLOO]
else:
    from torch.testing._internal.common_distributed import MultiProcessTestCase
    from torch.testing._internal.distributed.rpc.rpc_test import RpcTest
    from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture

    class Rpc(RpcTest, TensorPipeRpcAgentTestFixture, MultiProcessTestCase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

    WANTED = [f"Rpc.{name}" for name in RPC]

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.argv += WANTED
    run_tests()
