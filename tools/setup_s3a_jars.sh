#!/bin/sh
# Makes .cache/s3a hold the jars of tools/s3a/pom.xml and nothing else; the copy of the pom beside them is the stamp.
set -eu
cd "$(dirname "$0")/.."

if cmp -s tools/s3a/pom.xml .cache/s3a/pom.xml; then exit 0; fi
echo "s3a-jars: fetching what Spark needs to read s3a (about 18 MB the first time)" >&2
rm -rf .cache/s3a .cache/s3a.partial
JAVA_HOME="$(cat .cache/java_home)" mvn --batch-mode --quiet -Dstyle.color=never --strict-checksums --file tools/s3a/pom.xml \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/.cache/s3a.partial"
cp tools/s3a/pom.xml .cache/s3a.partial/pom.xml
mv .cache/s3a.partial .cache/s3a
