#!/bin/sh
# Makes .venv hold exactly what the locks name, and Tilth itself in place of an installed copy.
# Each step leaves a stamp of what it read, so a second run does nothing and needs no network.
# PYTHON chooses the interpreter of a new .venv; else it is the newest one found that fits.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# fits COMMAND: is it a Python that the locked requirements have been made for?
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' >/dev/null 2>&1; }

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || fail "PYTHON=$PYTHON is no Python from 3.11 to 3.14; name one that is."
        echo "$PYTHON"
        return
    fi
    for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
        if fits "$candidate"; then echo "$candidate"; return; fi
    done
    fail "no Python from 3.11 to 3.14 was found on PATH; install one, or name it: make setup PYTHON=/path/to/python3"
}

# Debian and Ubuntu keep the part of Python that makes environments in a package of its own.
check_venv_module() {
    if "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; then return; fi
    package="$("$1" -c 'import sys; print("python{}.{}-venv".format(*sys.version_info))')"
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing $package"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2 \
            || fail "apt-get could not install $package; install it and run this again."
    else
        fail "$1 cannot make virtual environments; install $package (or your system's name for it)."
    fi
}

# digest FILE...: one line that changes when a file, or the place of this folder, does.
digest() { { pwd; cat "$@"; } | cksum; }

pip_install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$@"; }

if ! fits .venv/bin/python; then
    python="$(choose_python)"
    check_venv_module "$python"
    say "making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
fi

locked="$(digest requirements-build.lock requirements.lock)"
if [ "$(cat .venv/requirements.stamp 2>/dev/null)" != "$locked" ]; then
    say "installing the locked requirements; the first time this fetches several hundred megabytes, most of it Spark"
    pip_install --require-hashes -r requirements-build.lock
    pip_install --require-hashes --no-build-isolation -r requirements.lock
    echo "$locked" >.venv/requirements.stamp
fi

project="$(digest pyproject.toml)"
if [ "$(cat .venv/project.stamp 2>/dev/null)" != "$project" ]; then
    # With its requirements and without an index: one that the locks lack, or have in another version, fails.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-index \
        --editable '.[dev,server]' || fail "the locks do not fit pyproject.toml; run: make lock"
    .venv/bin/python -m pip check >&2 || fail "the locks do not fit one another; run: make lock"
    echo "$project" >.venv/project.stamp
fi
