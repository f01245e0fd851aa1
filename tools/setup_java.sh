#!/bin/sh
# Finds a full Java 17 or 21 and writes its home to .cache/java_home; sees to Maven while the broker's jars are missing.
# Looks at JAVA_HOME, the last choice, PATH and the usual folders. What is missing is installed on Debian and Ubuntu when run as root.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'java: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# is_full HOME: a Java 17 or 21 with every standard module, not a cut-down runtime that Spark cannot run on.
is_full() {
    [ -x "$1/bin/java" ] || return 1
    version="$("$1/bin/java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.specification\.version = //p')"
    case "$version" in 17 | 21) ;; *) return 1 ;; esac
    modules="$("$1/bin/java" --list-modules 2>/dev/null)"
    for module in java.se jdk.unsupported jdk.security.auth; do
        case "$modules" in *"$module@"*) ;; *) return 1 ;; esac
    done
}

candidates() {
    echo "${JAVA_HOME:-}"
    cat .cache/java_home 2>/dev/null || true
    if java_on_path="$(command -v java)"; then
        dirname "$(dirname "$(readlink -f "$java_on_path")")"
    fi
    for home in /usr/lib/jvm/* /Library/Java/JavaVirtualMachines/*/Contents/Home "${HOME:-/nonexistent}"/.sdkman/candidates/java/*; do
        echo "$home"
    done
}

find_java() {
    candidates | while IFS= read -r home; do
        if [ -n "$home" ] && is_full "$home"; then echo "$home"; break; fi
    done
}

has_jars() { cmp -s tools/kafka/pom.xml .cache/kafka/pom.xml; }
has_maven() { has_jars || command -v mvn >/dev/null 2>&1; }

# Debian and Ubuntu releases carry 17, 21 or both.
java_package() {
    for package in openjdk-17-jdk-headless openjdk-21-jdk-headless; do
        if apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; return; fi
    done
}

install_missing() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || return 0
    apt-get update -qq || say "apt-get update failed; trying with what is known"
    packages=""
    [ -n "$home" ] || packages="$(java_package)"
    has_maven || packages="$packages maven"
    say "installing $packages"
    # shellcheck disable=SC2086  # one word a package
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2 \
        || say "apt-get could not install $packages"
}

home="$(find_java)"
if [ -z "$home" ] || ! has_maven; then
    install_missing
    home="$(find_java)"
fi
[ -n "$home" ] || fail "no full Java 17 or 21 was found; install one (openjdk-17-jdk-headless on Debian and Ubuntu) or set JAVA_HOME to it."
has_maven || fail "Maven (mvn) was not found on PATH; install it (package maven on Debian and Ubuntu); it fetches the Kafka broker."
mkdir -p .cache
echo "$home" >.cache/java_home
