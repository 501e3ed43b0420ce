"""Compares what gpu_check.sh brought back with what its programs say they did; exit code 1 where something differs."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rankscope.model import Reading
from rankscope.readers.rankfile import read_rank_file

Sums = dict[tuple[str, str, str], tuple[int, float, int]]  # layer, group, name -> calls, ns, bytes


def sums_of(reading: Reading) -> Sums:
    columns: Any = reading.tally_columns
    sums: Sums = {}
    for i in range(len(columns["calls"])):
        key = tuple(columns[name].values[columns[name].codes[i]] for name in ("layer", "group", "name"))
        calls, total_ns, size = sums.get(key, (0, 0.0, 0))  # type: ignore[arg-type]
        new = (calls + int(columns["calls"][i]), total_ns + columns["total_ns"][i], size + int(columns["bytes"][i]))
        sums[key] = new  # type: ignore[index]
    return sums


def total(sums: Sums, layer: str, part: str, group: str = "") -> tuple[int, float, int]:
    found = [row for key, row in sums.items() if key[0] == layer and part in key[2] and group in key[1]]
    return sum(row[0] for row in found), sum(row[1] for row in found), sum(row[2] for row in found)


def reading_of(folder: Path, pid: int | None = None) -> Reading:
    paths = sorted(folder.glob(f"ranks/*/{pid or '*'}.rank"))
    readings = [read_rank_file(path) for path in paths]
    return max(readings, key=lambda reading: len(reading.tally_columns["calls"]))


def check_model(folder: Path, told: dict[str, Any], api: str) -> list[str]:
    """The lines that say what is wrong."""
    reading = reading_of(folder, told["pid"])
    sums = sums_of(reading)
    pairs: list[tuple[str, Any, Any]] = [
        ("atan kernels", total(sums, "gpu", "atan")[0], told["atan_kernels"]),
        ("copied to the device, bytes", total(sums, "gpu", "HtoD")[2] >= told["copy_bytes"], True),
        ("copied to the host, bytes", total(sums, "gpu", "DtoH")[2] >= told["copy_bytes"], True),
        ("set, bytes", total(sums, "gpu", "memset")[2] >= told["set_bytes"], True),
        ("ranges outer", total(sums, "nvtx", "outer")[0], told["ranges_of_each_name"]),
        ("ranges inner", total(sums, "nvtx", "inner")[0], told["ranges_of_each_name"]),
    ]
    if told["domains"] == 3:
        for domain in ("model", "data"):
            pairs.append((f"domain {domain}", total(sums, "nvtx", "", domain)[0], told["ranges_of_each_name"]))
    if api != "none":
        pairs.append(("cudaGraphLaunch", total(sums, "cuda_api", "cudaGraphLaunch")[0], told["graph_launches"]))
        pairs.append(("cudaMalloc", total(sums, "cuda_api", "cudaMalloc")[0] >= told["mallocs"], True))
    for note in reading.notes:
        print(f"  note: {note.text}")
    for key, row in sorted(sums.items(), key=lambda pair: -pair[1][1])[:40]:
        print(f"  {row[0]:8d} {row[1] / 1e6:12.4f} ms {row[2]:12d} B  {key[0]} {key[1]} {key[2][:90]}")
    return [f"{name}: {found} recorded, {wanted} done" for name, found, wanted in pairs if found != wanted]


def main() -> int:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(name, filter="data")
        work = Path(name)
        for api in ("sync", "all", "none"):
            print(f"[model {api}]")
            text = (work / f"model-{api}.json").read_text().strip()
            if not text:
                wrong.append(f"model-{api}: did not finish: {(work / f'model-{api}.err').read_text()[-500:]}")
                continue
            wrong += [f"{api}: {line}" for line in check_model(work / f"model-{api}", json.loads(text), api)]
        done = int((work / "killed.txt").read_text().split()[-1])
        kept = total(sums_of(reading_of(work / "killed")), "gpu", "")[0]
        print(f"[kill -9] {done} launches said, {kept} kernels in the file")
        if kept < 0.5 * done:
            wrong.append(f"killed: only {kept} of {done} kernels are there")
        for note in reading_of(work / "aside").notes:
            print(f"[aside] {note.text}")
        print((work / "cost.jsonl").read_text())
    print("\n".join(wrong) or "all as it should be")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
