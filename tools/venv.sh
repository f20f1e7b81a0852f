#!/usr/bin/env bash
# Prints the path of the Python environment that the tests use.
echo "${LANEWAY_TEST_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/laneway/test-venv}"
