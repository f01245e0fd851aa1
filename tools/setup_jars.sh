#!/bin/sh
# setup_jars.sh NAME WORDS: makes .cache/NAME hold the jars of tools/NAME/pom.xml and nothing else; the copy of the pom
# beside them is the stamp. WORDS say what is fetched.
set -eu
cd "$(dirname "$0")/.."

target=.cache/$1
if cmp -s "tools/$1/pom.xml" "$target/pom.xml"; then exit 0; fi
echo "$1: fetching $2" >&2
rm -rf "$target" "$target.partial"
JAVA_HOME="$(cat .cache/java_home)" mvn --batch-mode --quiet -Dstyle.color=never --strict-checksums --file "tools/$1/pom.xml" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/$target.partial"
cp "tools/$1/pom.xml" "$target.partial/pom.xml"
mv "$target.partial" "$target"
