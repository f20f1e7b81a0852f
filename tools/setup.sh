#!/usr/bin/env bash
# Installs what tests and generators need and this machine lacks. Prints every step,
# changes nothing when all is there. Debian (apt), as root or with sudo.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v go >/dev/null || { echo "setup: Go 1.26 or newer is needed: https://go.dev/dl" >&2; exit 1; }

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); } # need PROGRAM PACKAGE
need thrift thrift-compiler
need protoc protobuf-compiler
need python3 python3-venv
need node nodejs
need curl curl
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing with apt: ${missing[*]}"
  sudo=""; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# The Python side of the tests lives in a virtual environment beside the build cache, so
# that clones share it.
venv=$(tools/venv.sh)
stamp="$venv/.installed-$(sha256sum test/py/requirements.txt | cut -c1-16)"
if [ ! -e "$stamp" ]; then
  echo "setup: Python environment in $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r test/py/requirements.txt
  touch "$stamp"
fi
