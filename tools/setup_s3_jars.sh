#!/bin/sh
# Makes .cache/s3 hold the jars of tools/s3/pom.xml and nothing else; the copy of the pom beside them is the stamp.
set -eu
cd "$(dirname "$0")/.."

if cmp -s tools/s3/pom.xml .cache/s3/pom.xml; then exit 0; fi
echo "s3-jars: fetching the S3 server of the tests (about 20 MB the first time)" >&2
rm -rf .cache/s3 .cache/s3.partial
JAVA_HOME="$(cat .cache/java_home)" mvn --batch-mode --quiet -Dstyle.color=never --strict-checksums --file tools/s3/pom.xml \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/.cache/s3.partial"
cp tools/s3/pom.xml .cache/s3.partial/pom.xml
mv .cache/s3.partial .cache/s3
