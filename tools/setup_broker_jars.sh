#!/bin/sh
# Makes .cache/kafka hold the jars of tools/kafka/pom.xml and nothing else; the copy of the pom beside them is the stamp.
set -eu
cd "$(dirname "$0")/.."

if cmp -s tools/kafka/pom.xml .cache/kafka/pom.xml; then exit 0; fi
echo "broker-jars: fetching the Kafka broker (about 100 MB the first time)" >&2
rm -rf .cache/kafka .cache/kafka.partial
JAVA_HOME="$(cat .cache/java_home)" mvn --batch-mode --quiet -Dstyle.color=never --strict-checksums --file tools/kafka/pom.xml \
    dependency:copy-dependencies -DoutputDirectory="$PWD/.cache/kafka.partial"
cp tools/kafka/pom.xml .cache/kafka.partial/pom.xml
mv .cache/kafka.partial .cache/kafka
