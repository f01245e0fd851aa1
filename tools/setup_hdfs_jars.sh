#!/bin/sh
# Makes .cache/hdfs hold the jars of tools/hdfs/pom.xml and nothing else; the copy of the pom beside them is the stamp.
set -eu
cd "$(dirname "$0")/.."

if cmp -s tools/hdfs/pom.xml .cache/hdfs/pom.xml; then exit 0; fi
echo "hdfs-jars: fetching the HDFS of the tests (about 56 MB the first time)" >&2
rm -rf .cache/hdfs .cache/hdfs.partial
JAVA_HOME="$(cat .cache/java_home)" mvn --batch-mode --quiet -Dstyle.color=never --strict-checksums --file tools/hdfs/pom.xml \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/.cache/hdfs.partial"
cp tools/hdfs/pom.xml .cache/hdfs.partial/pom.xml
mv .cache/hdfs.partial .cache/hdfs
