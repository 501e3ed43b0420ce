"""Kernels keep their identity under their short names: recorded ones, made-up ones, and those of other tools."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rankscope.model.records import RankFacts, Reading, Tally
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.gpu.activities import kind_of
from rankscope.questions.gpu.cxx_names import function_of
from rankscope.questions.gpu.demangling import demangled
from rankscope.questions.gpu.kernel_names import full_names, kernel_names, readable_name, renamed, short_names
from runs.loaded import run_of

RECORDED = (Path(__file__).parent / "kernel_names.txt").read_text().splitlines()  # on an H200, with torch 2.11
ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
FILL = "_ZN2at6native29vectorized_elementwise_kernelILi{}ENS0_11FillFunctorI{}EESt5arrayIPcLm1EEEEviT0_T1_"
ALL_REDUCE = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
CUTLASS = "_ZN7cutlass7Kernel2I41cutlass_80_simt_sgemm_64x64_8x5_tn_align1EEvNT_6ParamsE"
# torch's XPU build: SYCL calls a kernel by the type that it is
XPU_ADD = "_ZTSN2at6native3xpu27VectorizedElementwiseKernelILi4ENS1_10AddFunctorIfEESt5arrayIPcLm3EEEE"
TRITON = "triton_poi_fused_add_mul_relu_0"
CUBLAS = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x64x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_5x_cublas"


def shortened(*names: str) -> list[str]:
    meanings = demangled(names)
    shown = short_names({name: meanings.get(name, name) for name in names})
    return [shown[name] for name in names]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ADD, "vectorized_elementwise_kernel<CUDAFunctor_add>"),
        (ALL_REDUCE, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        (CUTLASS, "Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>"),
        (TRITON, TRITON),
        (CUBLAS, CUBLAS),
        (XPU_ADD, "VectorizedElementwiseKernel<AddFunctor>"),
    ],
)
def test_what_kernels_are_called(name: str, short: str) -> None:
    assert shortened(name) == [short]


def test_arguments_stay_where_they_make_the_difference() -> None:
    assert shortened(FILL.format(4, "f")) == ["vectorized_elementwise_kernel<FillFunctor>"]
    two = shortened(FILL.format(4, "f"), FILL.format(2, "l"))
    assert two == [
        "vectorized_elementwise_kernel<FillFunctor<float>>",
        "vectorized_elementwise_kernel<FillFunctor<long>>",
    ]
    by_width = shortened(FILL.format(4, "f"), FILL.format(2, "f"))
    assert by_width == [
        "vectorized_elementwise_kernel<4, FillFunctor>",
        "vectorized_elementwise_kernel<2, FillFunctor>",
    ]
    assert shortened("_ZN1a1kEv", "_ZN1b1kEv") == ["a::k", "b::k"]
    assert shortened("_Z1ki", "_Z1kf", "k") == ["k(int)", "k(float)", "k"]


def test_all_recorded_names_are_demangled_and_stay_distinct() -> None:
    mangled = {name for name in RECORDED if name.startswith("_Z")}
    assert demangled(RECORDED).keys() == mangled, "those of more than 1,024 letters too"
    shown = shortened(*RECORDED)
    assert len(set(shown)) == len(RECORDED) == len(set(RECORDED))
    assert max(len(short) for short, name in zip(shown, RECORDED, strict=True) if name in mangled) < 125
    assert not any("::" in short.split("<")[0] or "(" in short.split("<")[0] for short in shown if "[" not in short)


def made_up(chance: random.Random, deep: int = 0) -> str:
    """A type or function with the shapes that kernels' names have."""
    words = (
        "a",
        "b",
        "Kernel",
        "operator()",
        "{lambda(int)#1}",
        "{lambda(float, a<b>)#2}",
        "(anonymous namespace)",
        "Array",
    )
    parts = []
    for _ in range(chance.randint(1, 3)):
        arguments = [made_up(chance, deep + 1) if chance.random() < 0.5 else chance.choice(("1", "float", "(E)0"))
                     for _ in range(chance.randint(0, 2 if deep < 3 else 0))]  # fmt: skip
        text = chance.choice(words) + (f"<{', '.join(arguments)}>" if arguments else "")
        parts.append(text + chance.choice(("", "", "(int, a<b> const&)", "(int) const")))
    return "::".join(parts)


@pytest.mark.parametrize("seed", range(40))
def test_short_names_are_injective(seed: int) -> None:
    chance = random.Random(seed)
    names = {chance.choice(("", "void ", "unsigned long ")) + made_up(chance) for _ in range(60)} | set(RECORDED[:20])
    names |= {name[: chance.randint(0, len(name))] for name in list(names)[:10]}  # cut anywhere, as nvprof does
    names |= {"".join(chance.choices("ab<>(){}:, *#_Z[]", k=chance.randint(1, 12))) for _ in range(60)}
    meanings = {name: name.replace("{lambda(int)#1}", "x") if chance.random() < 0.1 else name for name in names}
    for shown in (short_names(meanings), full_names(meanings)):
        assert shown.keys() == names
        assert len(set(shown.values())) == len(names)


@pytest.mark.parametrize(
    "text",
    [
        "[CUDA memcpy HtoD]",
        "Memcpy DtoD (Device -> Device)",
        "void cut<int, f(",
        "",
        "a b c",
        "void k<a>(int) and more",
    ],
)
def test_what_is_not_clear_is_left_alone(text: str) -> None:
    assert function_of(text) is None
    assert short_names({text: text}) == {text: text}


def test_names_of_nvprof() -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<int=4, at::native::AddFunctor<float>, Array<char*, int=3>>(int)"
    )
    function = function_of(name)
    assert function is not None
    assert readable_name(function) == "vectorized_elementwise_kernel<AddFunctor>"


def test_names_that_explode_are_left_alone() -> None:
    pairs = "".join(f"S_IS{number}_S{number}_E" for number in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    bomb = f"_Z1fISt4pairIiiE{pairs}Evv"
    assert demangled([ADD, bomb, CUTLASS]).keys() >= {ADD, CUTLASS}
    assert shortened(bomb) == [bomb]


def test_a_table_in_each_form() -> None:
    names = [FILL.format(4, "f"), FILL.format(2, "l"), "[CUDA memset]"]
    run = run_of([Reading(RankFacts(rank=0), tallies=[Tally("gpu", name, 1, 5.0) for name in names])])
    columns = (Column("layer", Unit.NAME), Column("name", Unit.NAME))
    rows = [*(("gpu", name) for name in names), ("nvtx", names[0])]

    def shown(form: str) -> list[object]:
        table = Table("x", "", columns, list(rows), warnings=[f"{names[0]}: slow"])
        return [row[1] for row in renamed(table, kernel_names(run, form)).rows] + table.warnings

    assert shown("mangled") == [*names, names[0], f"{names[0]}: slow"]
    short = "vectorized_elementwise_kernel<FillFunctor<float>>"
    assert shown("short")[0] == short and shown("short")[2:] == ["[CUDA memset]", names[0], f"{short}: slow"]
    full = shown("full")[1]
    assert str(full).startswith(
        "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<long>, std::"
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1", "compute"),  # rocBLAS
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE",
            "compute",
        ),  # torch's own, hipified
        ("ncclDevKernel_Generic_4", "communication"),  # RCCL
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned", "set"),
        ("[HIP memcpy HtoD]", "copy"),
        ("[OpenCL memcpy DtoH]", "copy"),
        ("[OpenCL memory map]", "copy"),
        ("[OpenCL memset]", "set"),
    ],
)
def test_names_of_torch_on_rocm_and_of_opencl(name: str, kind: str) -> None:
    """torch's ROCm builds need nothing but names."""
    assert kind_of(name) == kind
