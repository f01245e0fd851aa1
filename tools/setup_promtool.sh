#!/bin/sh
# Makes .cache/promtool/promtool, that of PATH, or on Debian and Ubuntu that of the package prometheus, which is not installed.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'promtool: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

if [ -x .cache/promtool/promtool ]; then exit 0; fi
new=.cache/promtool.partial
rm -rf .cache/promtool "$new"
mkdir -p "$new"

download() { (cd "$new" && apt-get download -qq prometheus >&2); }

if found="$(command -v promtool)"; then
    ln -s "$(readlink -f "$found")" "$new/promtool"
elif command -v apt-get >/dev/null 2>&1; then
    say "fetching the package prometheus (19 MB)"
    download || { [ "$(id -u)" -eq 0 ] && apt-get update -qq && download; } || fail "apt-get could not download the package prometheus; put promtool on PATH, which comes with Prometheus."
    dpkg-deb --extract "$new"/prometheus_*.deb "$new/package"
    mv "$new/package/usr/bin/promtool" "$new/promtool"
    rm -rf "$new/package" "$new"/prometheus_*.deb
else
    fail "put promtool on PATH, which comes with Prometheus."
fi
mv "$new" .cache/promtool
