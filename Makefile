# Second Token. Two commands are enough: `make lab` and `make test`; each sets up what it needs.
#   make lab                    open the lessons in JupyterLab
#   make lab ARGS=--no-browser  the same on a machine without a browser: open the printed address
#   make test                   every day: the linter, what is quick, and in full what changed (tests/selection.py)
#   make night                  before a release: every test, with the date's seeds; SHARD=2/4: a quarter of them
#   make touched                what `make night` would try of all that changed since it was last proven
#   make build                  rebuild the notebooks and modules whose lesson text changed
#   make install                set up what an instructor's commands need, and run nothing
#   make grade                  grade a simulated class and open the report: LESSON=… STUDENTS=… SEED=…
#   make book                   write the course as a static site into build/book, or ARGS=--self-study
#   make bench                  every benchmark; BENCH=quick: in two minutes; BENCH=benchmarks/decode.py ARGS=…: one;
#                               RECORD=yes: keep the results, from which `make build` writes docs/LOG.md's table
#   make format                 let ruff put code in its usual shape

VENV := .venv
PYTHON ?= python3
ARGS ?=
BENCHMARKS := $(sort $(filter-out %/harness.py,$(wildcard benchmarks/*.py)))
BENCH ?= $(BENCHMARKS)
LESSON ?= 03-kv-cache
STUDENTS ?= 24
SEED ?= 1
SHARD ?= 1/1
# nbgrader calls its helpers by bare name, so they must be on PATH.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Containers often set this; each of the many processes would then compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lab test night touched lint build install grade book bench format
.DELETE_ON_ERROR:

lab: $(VENV)/installed-lab
	python -m course lab $(ARGS)

# Each process has one thread: the tests are many and small. There are two processes more than cores, for some
# tests wait for other programs. The longest part comes first.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
PYTEST := OMP_NUM_THREADS=1 python -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder

test: lint
	$(PYTEST) $(ARGS)

night: lint
	$(PYTEST) --night --shard $(SHARD) $(ARGS)

touched: $(VENV)/installed-all
	$(PYTEST) --touched $(ARGS)

lint: $(VENV)/installed-all
	ruff format --check . && ruff check . && lint-imports

build: $(VENV)/installed-all
	python -m autograder build $(ARGS)

install: $(VENV)/installed-teaching

# `grade` and `report` end with 1 where somebody has no grade, and in such a class somebody never has one.
grade: $(VENV)/installed-grading
	autograder simulate $(LESSON) --students $(STUDENTS) --seed $(SEED) --into grading/simulated
	cd grading/simulated && { autograder grade $(LESSON) $(ARGS) || test $$? = 1; }
	cd grading/simulated && { autograder report $(LESSON) --open || test $$? = 1; }

book: $(VENV)/installed-book
	python -m autograder book $(ARGS)

# One thread, so that numbers can be compared; each ends with one line of JSON.
bench: $(VENV)/installed-all
	set -e; for file in $(if $(filter quick,$(BENCH)),$(BENCHMARKS),$(BENCH)); do echo "== $$file"; \
	  OMP_NUM_THREADS=1 python $$file $(if $(filter quick,$(BENCH)),--quick) \
	    $(if $(RECORD),--out benchmarks/recorded/$$(basename $$file .py).json) $(ARGS); done

format: $(VENV)/installed-all
	ruff format . && ruff check --fix .

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Second Token needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Say which one to use: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-lab: EXTRAS := lab
$(VENV)/installed-grading: EXTRAS := grading
$(VENV)/installed-book: EXTRAS := grading,authoring,book
$(VENV)/installed-teaching: EXTRAS := lab,grading,authoring,book
$(VENV)/installed-all: EXTRAS := lab,grading,authoring,book,serve,test
INSTALLED := $(addprefix $(VENV)/installed-,lab grading book teaching all)
$(INSTALLED): $(VENV)/bin/python pyproject.toml constraints.txt
	python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $(if $(filter %-all,$@),$(INSTALLED),$@)
