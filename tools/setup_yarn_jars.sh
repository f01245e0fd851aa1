#!/bin/sh
# Makes .cache/yarn hold the jars of tools/yarn/pom.xml and nothing else; the copy of the pom beside them is the stamp.
set -eu
cd "$(dirname "$0")/.."

if cmp -s tools/yarn/pom.xml .cache/yarn/pom.xml; then exit 0; fi
echo "yarn-jars: fetching the YARN of the demo (about 10 MB the first time)" >&2
rm -rf .cache/yarn .cache/yarn.partial
JAVA_HOME="$(cat .cache/java_home)" mvn --batch-mode --quiet -Dstyle.color=never --strict-checksums --file tools/yarn/pom.xml \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/.cache/yarn.partial"
cp tools/yarn/pom.xml .cache/yarn.partial/pom.xml
mv .cache/yarn.partial .cache/yarn
