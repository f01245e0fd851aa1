#!/bin/sh
# Sees to Chromium and its driver, with which the console is tested. What is missing is installed on Debian when run as root.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'browser: %s\n' "$*" >&2; }
has() { command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; }

if has; then exit 0; fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing chromium and chromium-driver (about 121 MB to fetch)"
    apt-get update -qq || say "apt-get update failed; trying with what is known"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >&2 || true
fi
has || { say "install Chromium and its driver, so that chromium and chromedriver are on PATH; the tests of the console need them"; exit 1; }
