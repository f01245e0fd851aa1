#!/bin/bash
# Sends a thousand orders to the topic of the example, which is made by the first one.
set -euo pipefail
customers=(ada bob cyd)
for number in $(seq 1000); do
    echo "{\"id\": $number, \"customer\": \"${customers[number % 3]}\", \"amount\": $((number % 50)), \"at\": \"2026-01-05 12:00:00\"}"
done | /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server broker:19092 --topic orders
