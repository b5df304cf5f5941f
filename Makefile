# From a fresh clone, with git, a C++20 compiler and Python 3.11 or newer:
#   make demo    builds gpushim and runs the example with its report
#   make test    builds gpushim and runs every test; the exit status tells
#
# Variables: PYTHON (the interpreter to build for), CUDA (AUTO, ON or OFF), ARCHS (GPU architectures, for example 90;
# empty: all that the build knows), JOBS (parallel jobs), DEVICE (auto, cuda or host) for demo, conformance and bench.

PYTHON ?= python3
CUDA ?= AUTO
ARCHS ?=
JOBS ?= $(shell nproc)
DEVICE ?= host
SANITIZERS ?= address,undefined thread
SANITIZED_TESTS ?= tests/dispatch tests/shim

VENV := .venv
PY := $(VENV)/bin/python
# pip builds in this tree; later builds go on in it, and the C++ tests are built there too.
TREE = $(shell $(PY) -c 'import sys, sysconfig; print(f"build/temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}/_skbuild")')
SITE = $(shell $(PY) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
CMAKE_ARGS_USED := -DGPUSHIM_CUDA=$(CUDA) $(if $(ARCHS),"-DGPUSHIM_CUDA_ARCHITECTURES=$(ARCHS)")
CXX_SOURCES := CMakeLists.txt $(shell find gpu kernels dispatch compat shim -name '*.[ch]pp' -o -name '*.h' -o -name '*.cu' \
    -o -name '*.cuh' -o -name '*.def' -o -name '*.py.in' -o -name CMakeLists.txt)
PY_SOURCES := $(wildcard shim/gpushim/*.py)
CONFORMANCE_SOURCES := $(wildcard shim/gpushim/conformance/*.py)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: build demo tidy test cxx-tests python-tests conformance bench lint format sanitize sanitize-python sanitize-kernels docs clean FORCE
.DELETE_ON_ERROR:

build: $(VENV)/built

# Build requirements come from pyproject.toml, test requirements from setup.cfg: neither is repeated here.
$(VENV)/requirements.txt: pyproject.toml setup.cfg
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gpushim needs Python 3.11 or newer; set PYTHON="; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PYTHON) -c 'import configparser, tomllib; c = configparser.ConfigParser(); c.read("setup.cfg"); \
	  print("cmake\nninja", *tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n"); \
	  print(c["options"]["install_requires"], c["options.extras_require"]["test"], sep="\n")' > $@.new
	$(PY) -m pip install --quiet --requirement $@.new
	mv $@.new $@

# The configuration of the last build: changing CUDA= or ARCHS= builds anew.
$(VENV)/configuration: FORCE | $(VENV)/requirements.txt
	@echo '$(CMAKE_ARGS_USED)' | cmp -s - $@ || echo '$(CMAKE_ARGS_USED)' > $@

# The first build is `pip install .` itself.
$(VENV)/installed: $(VENV)/requirements.txt $(VENV)/configuration
	PATH="$(abspath $(VENV)/bin):$$PATH" CMAKE_ARGS='$(CMAKE_ARGS_USED)' \
	  $(PY) -m pip install --no-build-isolation --no-deps --force-reinstall --verbose .
	@grep -h 'GPUSHIM_CUDA:\|CMAKE_CUDA_COMPILER:' $(TREE)/CMakeCache.txt || true
	touch $@

# Later builds compile what changed.
$(VENV)/built: $(VENV)/installed $(CXX_SOURCES) $(PY_SOURCES) $(CONFORMANCE_SOURCES) conformance/expected.toml
	$(VENV)/bin/cmake --build $(TREE)
	$(VENV)/bin/cmake --install $(TREE) --prefix $(SITE) > $(TREE)/install.log
	cp $(PY_SOURCES) $(SITE)/gpushim/
	cp $(CONFORMANCE_SOURCES) $(SITE)/gpushim/conformance/
	touch $@

demo: build
	$(PY) examples/demo.py

cxx-tests: build
	$(VENV)/bin/cmake -S . -B $(TREE) -DGPUSHIM_TESTS=ON > $(TREE)/configure.log || { cat $(TREE)/configure.log; exit 1; }
	$(VENV)/bin/cmake --build $(TREE)

# C++ tests, Python tests, conformance smoke; ends with "N passed, N failed".
test: cxx-tests
	$(PY) tests/run.py --ctest $(TREE) --jobs $(JOBS)

python-tests: build
	$(PY) -m pytest

conformance: build
	$(PY) -m gpushim.conformance --device $(DEVICE) -n $(JOBS)

bench: build
	$(PY) benchmarks/run.py

# The C++ tests under each sanitizer, without CUDA and without Python.
sanitize: $(VENV)/requirements.txt
	for sanitizer in $(SANITIZERS); do \
	  tree=build/sanitize-$$(echo $$sanitizer | tr , -) && \
	  PATH="$(abspath $(VENV)/bin):$$PATH" cmake -G Ninja -S . -B $$tree -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGPUSHIM_CUDA=OFF \
	    -DGPUSHIM_PYTHON=OFF -DGPUSHIM_TESTS=ON -DGPUSHIM_WERROR=ON "-DGPUSHIM_SANITIZE=$$(echo $$sanitizer | tr , ';')" && \
	  $(VENV)/bin/cmake --build $$tree && \
	  ASAN_OPTIONS=handle_segv=0:allow_user_segv_handler=1 $(VENV)/bin/ctest --test-dir $$tree --output-on-failure -j $(JOBS) || exit 1; \
	done

# The CUDA kernels' tests under compute-sanitizer, in as many processes as there are processors; those of the kernels whose
# threads share memory. TOOL=memcheck looks for accesses out of bounds.
sanitize-kernels: cxx-tests
	CUDA_TESTS=$(TREE)/tests/cuda/cuda_tests tests/cuda/sanitize.sh $(or $(TOOL),racecheck)

# Python tests with a sanitizer in the extension. Its library must come before the interpreter, libstdc++ beside it; leaks
# are not looked for, for the interpreter's are many; page faults are ours, and their handler may allocate: they happen at the
# instruction that touches a page of an array, never inside malloc.
sanitize-python: $(VENV)/requirements.txt
	for sanitizer in $(SANITIZERS); do \
	  tree=$(CURDIR)/build/sanitize-python-$$(echo $$sanitizer | tr , -) && \
	  PATH="$(abspath $(VENV)/bin):$$PATH" cmake -G Ninja -S . -B $$tree -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGPUSHIM_CUDA=OFF \
	    -DPython_EXECUTABLE=$(abspath $(PY)) "-DGPUSHIM_SANITIZE=$$(echo $$sanitizer | tr , ';')" && \
	  $(VENV)/bin/cmake --build $$tree && \
	  mkdir -p $$tree/package/gpushim && ln -sf $(CURDIR)/shim/gpushim/* $$tree/shim/_shim*.so $$tree/package/gpushim/ && \
	  PYTHONPATH=$$tree/package PYTHONMALLOC=malloc \
	    LD_PRELOAD="$$($(CXX) -print-file-name=lib$$(echo $$sanitizer | cut -c1)san.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allow_user_segv_handler=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    TSAN_OPTIONS=handle_segv=0:allow_user_segv_handler=1:die_after_fork=0:report_signal_unsafe=0:suppressions=$(CURDIR)/tests/thread_sanitizer.supp \
	    $(PY) -m pytest -q -p no:cacheprovider $(SANITIZED_TESTS) || exit 1; \
	done

lint: $(VENV)/lint-tools
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r $(VENV)/bin/clang-format --dry-run --Werror

format: $(VENV)/lint-tools
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r $(VENV)/bin/clang-format -i

tidy: build $(VENV)/lint-tools
	git ls-files 'gpu/*.cpp' 'kernels/*.cpp' 'dispatch/*.cpp' 'compat/*.cpp' 'shim/*.cpp' | \
	  xargs -r -P $(JOBS) -n 1 $(VENV)/bin/clang-tidy --quiet -p $(TREE) --extra-arg=-Wno-unknown-warning-option

$(VENV)/lint-tools: $(VENV)/requirements.txt
	$(PY) -c 'import configparser; c = configparser.ConfigParser(); c.read("setup.cfg"); print(c["options.extras_require"]["lint"])' > $@.new
	$(PY) -m pip install --quiet --requirement $@.new
	mv $@.new $@

# docs/settings.md and docs/fallback.md are made from the tables in the code, docs/coverage.md by calling NumPy's functions,
# docs/conformance.md and docs/accuracy.md from what was measured (conformance/results).
docs: build
	$(PY) docs/generate.py
	$(PY) docs/coverage.py
	$(PY) conformance/page.py
	$(PY) conformance/accuracy.py --page

clean:
	rm -rf build dist demo-output .venv .pytest_cache .ruff_cache .hypothesis shim/gpushim.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

FORCE:
