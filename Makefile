# `make demo` and `make test` need nothing beforehand but Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo demo-patches test lint docs docs-links package bench screenshot clean

demo: $(READY)
	$(BIN)/python examples/demo.py

demo-patches: $(READY)
	$(BIN)/python examples/demo_patches.py

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, into build/site; warnings and links that lead nowhere are errors. Needs no network.
docs: $(READY)
	rm -rf docs/reference/generated
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet -b html docs build/site
	$(BIN)/python docs/_extensions/check_site.py build/site
	@echo "built build/site/index.html"

# Links to other sites, which needs a network.
docs-links: $(READY)
	$(BIN)/python -m sphinx --quiet -b linkcheck docs build/links

# The source archive, the wheel built of it, and the README's code with that wheel alone.
package: $(READY)
	rm -rf dist build/clean
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.tar.gz
	build/clean/bin/rnade --version
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
	build/clean/bin/python .ci/check_package.py

# The README's pictures of pages, as the tests' browser sees them (Debian: apt install chromium).
screenshot: $(READY)
	RNADE_SCREENSHOTS=build/screenshots $(BIN)/python -m pytest -n 0 tests/test_browser.py tests/test_explore_browser.py -k screenshots
	cp build/screenshots/report.png build/screenshots/explore.png docs/images/

bench: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rnade needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) build demo-output .pytest_cache .ruff_cache .mypy_cache
