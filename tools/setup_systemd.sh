#!/bin/sh
# Sees to systemd-analyze, which checks the unit of the service. It is installed on Debian and Ubuntu when run as root.
set -eu

say() { printf 'systemd: %s\n' "$*" >&2; }
has() { command -v systemd-analyze >/dev/null 2>&1; }

if has; then exit 0; fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing systemd, for systemd-analyze; it is not started"
    apt-get update -qq || say "apt-get update failed; trying with what is known"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >&2 || true
fi
has || { say "install systemd, so that systemd-analyze is on PATH; the test of deploy/systemd needs it"; exit 1; }
