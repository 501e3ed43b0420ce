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
test_all_reduce_sum test_all_reduce_sum_async test_all_reduce_max test_all_gather test_all_gather_object_default_pg
test_all_reduce_coalesced_sum test_all_to_all test_barrier test_barrier_group test_broadcast test_broadcast_object_list
test_gather test_gather_object test_irecv test_isend test_reduce_sum test_scatter test_send_recv test_send_recv_autograd_profiler
test_DistributedDataParallel_requires_grad test_ddp_join_model_equivalence test_ddp_grad_div_uneven_inputs test_ddp_zero_output_features
test_monitored_barrier_gloo test_get_backend test_new_subgroups test_destroy_group test_all_reduce_group_sum test_undefined_grad_parity_unused_parameters
""".split()
RPC = """
test_add test_async_add test_builtin_remote_ret test_multi_rpc test_py_built_in test_py_class_constructor test_rref_forward_chain
test_py_udf_remote test_worker_id test_self_add test_py_raise_in_user_func test_use_rref_after_shutdown test_wait_all_workers_timeout
test_rpc_profiling_async_function test_graceful_shutdown_with_uneven_workload
""".split()

if GROUP == "gloo":
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class Gloo(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

    WANTED, CLASSES = GLOO, [Gloo]
else:
    from torch.testing._internal.common_distributed import MultiProcessTestCase
    from torch.testing._internal.distributed.rpc.rpc_test import RpcTest
    from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture

    class Rpc(RpcTest, TensorPipeRpcAgentTestFixture, MultiProcessTestCase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

    WANTED, CLASSES = RPC, [Rpc]

for cls in CLASSES:
    for name in dir(cls):
        if name.startswith("test_") and name not in WANTED:
            setattr(cls, name, None)

if __name__ == "__main__":
    run_tests()
