"""Which kernels communicate: the recorder, the analyses and SQL say the same of kernels that real programs ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from mpis import ROOT
from native.cuda.test_cuda_devices import SECOND, device
from native.cuda.test_cuda_ranges import make_script_driver, play
from rankscope.questions.gpu.communication_kernels import SQL, communicates

# As profilers wrote them: NCCL 2.10 to 2.27, RCCL, vLLM, TensorRT-LLM, DeepEP, torch's symmetric memory.
COMMUNICATING = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*,unsigned_long,ncclWork*)",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "_Z37ncclKernel_Broadcast_RING_LL_Sum_int8_tP11ncclDevCommmP8ncclWork",
    "rccl_main_kernel",
    "mscclKernel_Sum_half_LL_false(ncclDevComm*)",
    "void_vllm::cross_device_reduce_1stage<__nv_bfloat16,2>(vllm::RankData*)",
    "_ZN4vllm26cross_device_reduce_2stageIfLi8EEEvPNS_8RankDataE",
    "void_(anonymous_namespace)::two_shot_all_reduce_kernel<c10::BFloat16,16,8>(c10::BFloat16**)",
    "void_(anonymous_namespace)::multimem_all_reduce_kernel<c10::BFloat16,16>(c10::BFloat16*)",
    "void_flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(int)3>(Params)",
    "void_deep_ep::internode::dispatch<false,4,true,int>(int4*,float*)",
    "nvshmemi_transfer_rma_nbi<NVSHMEMI_OP_PUT>",
)
COMPUTING = (
    "void_at::native::reduce_kernel<512,1,at::native::ReduceOp<float>>(ReduceOp)",
    "void_at::native::vectorized_elementwise_kernel<4,at::native::FillFunctor<float>>(int)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
    "void_cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4>(Params)",
    "void_at::native::_scatter_gather_elementwise_kernel<128,8>(int)",
    "void_at::native::index_elementwise_kernel<128,4,gather>(long)",
    "triton_per_fused_all_sum_0",
    "void_cub::DeviceReduceKernel<Policy600,float*>",
    "void_small_reduce_kernel<float>(float*)",
    "void_pynccltest_fill(float*)",
    "void_cunn_SoftMaxForward<8,float>(float*)",
)


@pytest.mark.parametrize("name", COMMUNICATING)
def test_moves_data_between_ranks(name: str) -> None:
    assert communicates(name)


@pytest.mark.parametrize("name", COMPUTING)
def test_computes(name: str) -> None:
    assert not communicates(name)


def test_sql_says_the_same() -> None:
    every = [*COMMUNICATING, *COMPUTING, "[CUDA memcpy DtoD]"]
    with duckdb.connect() as database:
        rows = database.execute(f"SELECT name, {SQL} FROM (SELECT unnest(?) AS name)", [every]).fetchall()
    assert dict(rows) == {name: communicates(name) for name in every}


def test_the_recorder_says_the_same(tmp_path: Path) -> None:
    """Each kernel is as long as a bit of its own, so that the sum tells which of them were counted."""
    every = [name[:120] for name in (*COMMUNICATING, *COMPUTING)]
    (tmp_path / "driver").mkdir()
    driver = make_script_driver(tmp_path / "driver", "plain")
    lines, at_ns = ["N 0"], SECOND
    for bit, name in enumerate(every):
        lines.append(f"k 1 {at_ns} {at_ns + (1 << bit)} {name}")
        at_ns += 1 << bit
    (tmp_path / "run").mkdir()
    play(driver, tmp_path / "run", lines)
    counted = int(device(tmp_path / "run")["communication_ns"])
    assert [bool(counted >> bit & 1) for bit in range(len(every))] == [communicates(name) for name in every]


def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "generated.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
