# Two commands matter: `make lab` opens the lessons, `make test` proves that everything works.
# All paths are relative to this folder, so that spaces in its own path do no harm.

PYTHON ?=
LESSON ?=
DECK   ?=
SCALE  ?= lesson
SEED   ?= 0
DATA   ?=
MODEL  ?=
DEVICE ?= auto
MINUTES ?= 8
PART   ?=
AGAIN  ?=

SHELL := /bin/sh
# A value as one word of the shell, whatever quotes are in it.
quoted = '$(subst ','\'',$(1))'
# The environment: .venv, or COURSE_VENV=FOLDER. The shell reads the name, whatever characters are in it.
VENV := "$${COURSE_VENV:-.venv}"
RUN := $(VENV)/bin/python
# Linux's C library keeps large freed buffers, for the next step of a training: see course_lib/memory.py.
export MALLOC_MMAP_THRESHOLD_ ?= 2147483647
export MALLOC_TRIM_THRESHOLD_ ?= 2147483647
.DEFAULT_GOAL := help
.PHONY: help ready lab test test-all test-nightly test-gradebook check run site build slides homework checkpoints bench clean distclean

ifeq ($(wildcard tools/setup.py),)
$(error Run make inside the course's folder, or name it: make -C "/path/to/the/course" lab)
endif

help:
	@echo 'make lab          open JupyterLab on the first lesson (sets everything up the first time)'
	@echo 'make test         prove that everything works: every lesson executed and compared, units, parity'
	@echo 'make test-all     what it leaves out: other seeds and scales, several processes, compiled models, types'
	@echo 'make test-nightly the same with every seed and case (an hour or more)'
	@echo 'make test-gradebook   the grades in nbgrader'\''s gradebook, with an nbgrader of its own (needs a network once)'
	@echo 'make check        the quick part of make test, without lessons and browser'
	@echo 'make run LESSON=09_bert SCALE=smoke   execute a lesson without a screen, into build/'
	@echo 'make run SCALE=smoke  execute all lessons, and make build/site/ of them; goes on where it failed (AGAIN=1: anew)'
	@echo 'make site         the lessons as they are stored and the API, as offline pages in build/site/'
	@echo 'make build LESSON=09_bert             execute a lesson and store its outputs in notebooks/ (for authors)'
	@echo 'make build DECK=1_attention           execute a deck and store its outputs in slides/ (for authors)'
	@echo 'make slides       the decks as offline HTML and PDF, into build/slides/ (one of them: DECK=1_attention)'
	@echo 'make homework     the homework that students get, into build/homework/ (docs/teaching.md leads on from there)'
	@echo 'make checkpoints  train the shipped models again'
	@echo 'make bench        speed and memory beside transformers (MINUTES=8; PART=core or families)'
	@echo 'make clean        remove what runs and tests left (unfinished checkpoints stay); make distclean removes .venv too'

# The set-up program itself runs on any Python that can print why it cannot go on; it prefers the newest that torch has.
ready:
	@py=$(call quoted,$(PYTHON)); \
	if [ -e $(VENV)/.ready ] && [ -x $(RUN) ] && [ -z "$$py" ]; then py=$(RUN); fi; \
	if [ -z "$$py" ]; then \
	  for each in python3.13 python3.12 python3.11 python3 python3.14 python; do \
	    if command -v $$each >/dev/null 2>&1 && \
	       $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then py=$$each; break; fi; \
	  done; \
	fi; \
	if [ -z "$$py" ]; then \
	  echo 'Set-up stopped: no Python 3.11 or newer was found; install one (python.org, apt, brew, conda) or say where it is: make lab PYTHON=/path/to/python3.11.' >&2; \
	  exit 1; \
	fi; \
	if ! command -v "$$py" >/dev/null 2>&1; then \
	  echo "Set-up stopped: there is no Python at $$py; say where it is: make lab PYTHON=/path/to/python3.11." >&2; exit 1; \
	fi; \
	"$$py" tools/setup.py

lab: ready
	@$(RUN) -m tools.lab

test: ready
	@$(RUN) -m pytest -m 'not slow'

test-all: ready
	@$(RUN) -m pytest -m 'slow and not nightly'

test-nightly: ready
	@COURSE_NIGHTLY=1 $(RUN) -m pytest -m slow

test-gradebook: ready
	@bash .ci/gradebook

check: ready
	@$(RUN) -m pytest tests -m 'not slow and not notebooks and not browser'

run: ready
	@$(RUN) -m tools.notebooks run $(call quoted,$(LESSON)) --scale $(call quoted,$(SCALE)) --seed $(call quoted,$(SEED)) \
	  $(if $(DATA),--data $(call quoted,$(DATA))) --device $(call quoted,$(DEVICE)) $(if $(MODEL),--model $(call quoted,$(MODEL))) $(if $(AGAIN),--again)

site: ready
	@$(RUN) -m tools.notebooks site

build: ready
ifdef DECK
	@$(RUN) -m tools.slides build $(call quoted,$(DECK))
else
	@$(RUN) -m tools.notebooks build $(foreach one,$(LESSON),$(call quoted,$(one)))
endif

slides: ready
	@$(RUN) -m tools.slides make $(foreach one,$(DECK),$(call quoted,$(one)))

homework: ready
	@$(RUN) -m classroom.grading.release

checkpoints: ready
	@$(RUN) -m course_lib zoo build --device $(call quoted,$(DEVICE))

bench: ready
	@$(RUN) -m lab.bench --minutes $(call quoted,$(MINUTES)) $(foreach one,$(PART),--part $(call quoted,$(one)))

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find build -mindepth 1 -maxdepth 1 ! -name checkpoints -exec rm -rf {} + 2>/dev/null || true
	find course_lib classroom lab tools tests -name __pycache__ -type d -prune -exec rm -rf {} +
	find notebooks -name .ipynb_checkpoints -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf .venv build course_lib.egg-info
