-- A table that a topic fills; it can be run again.
CREATE DATABASE IF NOT EXISTS shop;

CREATE TABLE IF NOT EXISTS shop.orders (id BIGINT, customer STRING, amount DECIMAL(10, 2), at TIMESTAMP)
ENGINE = MergeTree PARTITION BY toDate(at) ORDER BY (customer, at);

CREATE TABLE IF NOT EXISTS shop.orders_topic (id BIGINT, customer STRING, amount DECIMAL(10, 2), at TIMESTAMP)
ENGINE = Kafka
SETTINGS kafka_broker_list = 'broker:19092', kafka_topic_list = 'orders', kafka_group_name = 'tilth',
         kafka_format = 'JSONEachRow', stream_flush_interval_ms = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS shop.orders_view TO shop.orders AS SELECT * FROM shop.orders_topic;

SELECT service, state, reason FROM system.bg_threads WHERE database = 'shop' AND table = 'orders_topic';
