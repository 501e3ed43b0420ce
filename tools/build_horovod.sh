#!/bin/bash
# Compiles Horovod into an environment that has torch, numpy and Open MPI with its compiler wrappers:
#
#     tools/build_horovod.sh .envs/horovod
#
# Its last release asks for C++14, and torch's headers need C++17: so its source is fetched and changed before it is built.
# JOBS=2: compilers at once.
set -euo pipefail

VERSION=0.28.1
environment=$(cd "$1" && pwd)
python=$environment/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip install --quiet 'setuptools<81' wheel packaging cloudpickle psutil pyyaml
"$python" -m pip download --quiet --no-deps --no-binary horovod --no-build-isolation --dest "$work" "horovod==$VERSION"
tar -xzf "$work/horovod-$VERSION.tar.gz" -C "$work"
cd "$work/horovod-$VERSION"
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/; s/-std=c++14/-std=c++17/g' CMakeLists.txt horovod/*/CMakeLists.txt
grep -q 'CMAKE_CXX_STANDARD 17' CMakeLists.txt || { echo 'build_horovod: the C++ standard was not found in CMakeLists.txt' >&2; exit 1; }

export PATH="$environment/bin:$PATH" MAKEFLAGS="-j${JOBS:-2}"
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1
"$python" -m pip install --no-deps --no-build-isolation .
cd /
"$python" -c 'import horovod.torch as hvd; assert hvd.mpi_built() and hvd.gloo_built(), "built without MPI or Gloo"'
