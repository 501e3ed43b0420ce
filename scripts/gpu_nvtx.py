"""NVTX with domains of one's own: a shim around NVTX's headers, compiled where those and a C compiler are."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from ctypes import c_char_p, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from gpu_driver import find_file

SOURCE = r"""
#include <nvtx3/nvToolsExt.h>
static nvtxEventAttributes_t named(const char *text)
{
    nvtxEventAttributes_t attributes = {0};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = text;
    return attributes;
}
void *model_domain(const char *name) { return (void *)nvtxDomainCreateA(name); }
void model_push(void *domain, const char *text)
{
    nvtxEventAttributes_t attributes = named(text);
    if (domain)
        nvtxDomainRangePushEx((nvtxDomainHandle_t)domain, &attributes);
    else
        nvtxRangePushA(text);
}
void model_pop(void *domain)
{
    if (domain)
        nvtxDomainRangePop((nvtxDomainHandle_t)domain);
    else
        nvtxRangePop();
}
unsigned long long model_start(void *domain, const char *text)
{
    nvtxEventAttributes_t attributes = named(text);
    return nvtxDomainRangeStartEx((nvtxDomainHandle_t)domain, &attributes);
}
void model_end(void *domain, unsigned long long id) { nvtxDomainRangeEnd((nvtxDomainHandle_t)domain, id); }
"""


class Nvtx:
    """Ranges in the default domain (None) and in domains of one's own."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.model_domain.restype, library.model_domain.argtypes = c_void_p, (c_char_p,)
        library.model_push.restype, library.model_push.argtypes = None, (c_void_p, c_char_p)
        library.model_pop.restype, library.model_pop.argtypes = None, (c_void_p,)
        library.model_start.restype, library.model_start.argtypes = c_uint64, (c_void_p, c_char_p)
        library.model_end.restype, library.model_end.argtypes = None, (c_void_p, c_uint64)

    def domain(self, name: str) -> Any:
        return self._library.model_domain(name.encode())

    def push(self, domain: Any, text: str) -> None:
        self._library.model_push(domain, text.encode())

    def pop(self, domain: Any) -> None:
        self._library.model_pop(domain)

    def start(self, domain: Any, text: str) -> int:
        return int(self._library.model_start(domain, text.encode()))

    def end(self, domain: Any, number: int) -> None:
        self._library.model_end(domain, number)


def compile_nvtx(include: Path | None = None) -> tuple[Nvtx | None, str]:
    """The shim, or why it cannot be had."""
    header = find_file("nvtx3/nvToolsExt.h") if include is None else include / "nvtx3/nvToolsExt.h"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if header is None or compiler is None:
        return None, "no NVTX headers" if header is None else "no C compiler"
    folder = Path(tempfile.mkdtemp(prefix="nvtx-"))
    (folder / "shim.c").write_text(SOURCE)
    flags = ["-O1", "-shared", "-fPIC", f"-I{header.parent.parent}", "-o", str(folder / "shim.so")]
    done = subprocess.run(
        [compiler, *flags, str(folder / "shim.c"), "-ldl"], capture_output=True, text=True, check=False
    )
    try:
        return (Nvtx(ctypes.CDLL(str(folder / "shim.so"))), "") if done.returncode == 0 else (None, done.stderr[-300:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
