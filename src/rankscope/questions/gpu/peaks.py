"""What a GPU could compute at most, by its name."""

from __future__ import annotations

from collections.abc import Mapping

# 10^12 operations a second, dense (where a data sheet has the double for 2:4 sparsity, its half), of the matrix units
# where a GPU has them for that precision, with sums of 16-bit numbers in 32 bits as torch has them. By NVIDIA's data
# sheets and architecture papers, November 2026. A name that is not here, or goes on otherwise, is an unknown GPU.
_HOPPER_SXM = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_HOPPER_NVL = {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1670.5, "int8": 1670.5}
_H100_PCIE = {"fp64": 51.0, "fp32": 51.0, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0, "fp8": 1513.0, "int8": 1513.0}
_A100 = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0, "int8": 624.0}
PEAKS: Mapping[str, Mapping[str, float]] = {  # by how the name begins, without its maker and family
    "P100-SXM2": {"fp64": 5.3, "fp32": 10.6, "fp16": 21.2},
    "P100-PCIE": {"fp64": 4.7, "fp32": 9.3, "fp16": 18.7},
    "V100-SXM2": {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0},
    "V100-SXM3": {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0},
    "V100-PCIE": {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0},
    "V100S-PCIE": {"fp64": 8.2, "fp32": 16.4, "fp16": 130.0},
    "T4": {"fp32": 8.1, "fp16": 65.0, "int8": 130.0},
    "A100-SXM4": _A100,
    "A100-PCIE": _A100,
    "A100 80GB PCIe": _A100,
    "A30": {"fp64": 10.3, "fp32": 10.3, "tf32": 82.0, "fp16": 165.0, "bf16": 165.0, "int8": 330.0},
    "A10": {"fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0, "int8": 250.0},
    "A40": {"fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7, "int8": 299.3},
    "RTX A6000": {"fp32": 38.7, "tf32": 77.4, "fp16": 154.8, "bf16": 154.8, "int8": 309.7},
    "H100 80GB HBM3": _HOPPER_SXM,
    "H100 PCIe": _H100_PCIE,
    "H100 NVL": _HOPPER_NVL,
    "GH200 120GB": _HOPPER_SXM,
    "GH200 480GB": _HOPPER_SXM,
    "GH200 144G HBM3e": _HOPPER_SXM,
    "H200": _HOPPER_SXM,
    "H200 NVL": _HOPPER_NVL,
    "H20": {"fp64": 1.0, "fp32": 44.0, "tf32": 74.0, "fp16": 148.0, "bf16": 148.0, "fp8": 296.0, "int8": 296.0},
    "B200": {
        "fp64": 37.0, "fp32": 75.0, "tf32": 1125.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0, "int8": 4500.0,
    },
    "GB200": {
        "fp64": 40.0, "fp32": 80.0, "tf32": 1250.0, "fp16": 2500.0, "bf16": 2500.0, "fp8": 5000.0, "int8": 5000.0,
    },
    "L4": {"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5, "int8": 242.5},
    "L40": {"fp32": 90.5, "tf32": 90.5, "fp16": 181.0, "bf16": 181.0, "fp8": 362.0, "int8": 362.0},
    "L40S": {"fp32": 91.6, "tf32": 183.0, "fp16": 362.0, "bf16": 362.0, "fp8": 733.0, "int8": 733.0},
    "RTX 6000 Ada Generation": {"fp32": 91.1, "tf32": 182.1, "fp16": 364.2, "bf16": 364.2, "fp8": 728.5, "int8": 728.5},
    "RTX 3090": {"fp32": 35.6, "tf32": 35.6, "fp16": 71.2, "bf16": 71.2, "int8": 284.7},
    "RTX 4090": {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6},
    "RTX 5090": {"fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "bf16": 209.5, "fp8": 419.0, "int8": 838.0},
}  # fmt: skip
BEFORE = ("NVIDIA ", "Tesla ", "GeForce ", "Graphics Device ")
SIZES = (
    "GB",
    "GIB",
    "MB",
)  # a name may go on with its memory, and with that only: 'RTX 4090 Laptop GPU' is another one


def peaks_of(name: str) -> Mapping[str, float] | None:
    """Its peaks by precision, in 10^12 operations a second; None: not known."""
    for word in BEFORE:
        name = name.removeprefix(word)
    for known in sorted(PEAKS, key=len, reverse=True):
        if name == known or (name.startswith((f"{known} ", f"{known}-")) and _is_memory(name[len(known) + 1 :])):
            return PEAKS[known]
    return None


def _is_memory(words: str) -> bool:
    """16GB, 80GB HBM2e, …: what tells variants apart that compute alike."""
    first = words.upper().split(" ")[0]
    return first.rstrip("GIMB").isdigit() and first.endswith(SIZES)
