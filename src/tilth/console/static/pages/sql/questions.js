// The questions of docs/operate/questions.md, about all tables: instead of conditions on its example tables there are
// columns that name the table, and at most a condition that the question itself implies. `{table}` stands for a table
// that is chosen.

export const QUESTIONS = [
  {
    number: 1,
    title: "Why does nothing happen with this table?",
    about:
      "Somebody stopped a service: because has the reason, asked_from the address, asked_by the statement's " +
      "id in system.audit_log.",
    sql: [
      "SELECT database, table, service, switch, because, until, asked_from, asked_by",
      "FROM system.bg_threads WHERE switch = 'stopped'",
    ].join("\n"),
  },
  {
    number: 2,
    title: "Which part is damaged?",
    about: "The reason names its file; system.parts says the same of every part that is known to be damaged.",
    sql: "EXPLAIN MERGE {table}",
  },
  {
    number: 3,
    title: "Is the disk full?",
    about: "Services that write say so, and go on by themselves when there is room.",
    sql: [
      "SELECT database, table, service, reason, next_attempt FROM system.bg_threads",
      "WHERE state = 'failed' AND reason LIKE '%No space left%'",
    ].join("\n"),
  },
  {
    number: 4,
    title: "Why is a topic not read?",
    about: "Its broker does not answer: the reason has the addresses.",
    sql: [
      "SELECT database, table, state, reason, failures, next_attempt",
      "FROM system.bg_threads WHERE service = 'consume'",
    ].join("\n"),
  },
  {
    number: 5,
    title: "Why does a topic that is read give no rows?",
    about:
      "All its messages are dead letters: last_broken has the last one and what is wrong with it, the table of " +
      "dead letters all of them.",
    sql: "SELECT database, table, messages, dead, rows, last_broken, reason FROM system.kafka_tables",
  },
  {
    number: 6,
    title: "When is it tried again?",
    about: "Each failure in a row waits longer.",
    sql: [
      "SELECT database, table, service, failures, next_attempt, next_wakeup",
      "FROM system.bg_threads WHERE next_attempt IS NOT NULL",
    ].join("\n"),
  },
  {
    number: 7,
    title: "Why does an ALTER not end?",
    about: "latest_fail_reason is the cause, of latest_failed_part.",
    sql: [
      "SELECT database, table, command, parts_to_do, latest_failed_part, latest_fail_reason, next_attempt",
      "FROM system.mutations",
      "WHERE NOT is_done AND NOT is_killed",
    ].join("\n"),
  },
  {
    number: 8,
    title: "Who keeps old files?",
    about:
      "The reason names the reader: its address and program, since when, and on which server. " +
      "system.readers lists all of them.",
    sql: "EXPLAIN GC {table}",
  },
  {
    number: 9,
    title: "Why are INSERTs slow or refused?",
    about:
      "insert_pressure has the number of parts and the setting that limits it; reason says why they are not " +
      "merged.",
    sql: [
      "SELECT p.database, p.table, p.partition, p.insert_pressure, b.reason FROM system.partitions AS p",
      "JOIN system.bg_threads AS b ON p.database = b.database AND p.table = b.table AND b.service = 'merge'",
      "WHERE p.insert_pressure IS NOT NULL",
    ].join("\n"),
  },
  {
    number: 10,
    title: "Is memory scarce?",
    about: "memory_pressure says what writers feel, and which settings decide it.",
    sql: "SELECT name, memory_bytes, memory_limit_bytes, memory_pressure, memory_rejections FROM system.servers",
  },
  {
    number: 11,
    title: "What does a dropped table still cost, and how does it come back?",
    sql: "SELECT database, name, bytes, kept_until, undrop FROM system.dropped_tables",
  },
  {
    number: 12,
    title: "How far back can a table be read?",
    about: "The setting is history_setting; a read of an older time names it too.",
    sql: "SELECT database, name, readable_since, history_setting FROM system.tables WHERE engine = 'MergeTree'",
  },
  {
    number: 13,
    title: "Which view slows ingestion?",
    sql: [
      "SELECT database, table, slowest_view, slowest_view_share, last_round_seconds, view_seconds",
      "FROM system.kafka_tables",
    ].join("\n"),
  },
  {
    number: 14,
    title: "How long until the lag is gone, and what bounds the rate?",
    sql: "SELECT database, table, lag, rate, bounded_by, seconds_left FROM system.kafka_tables",
  },
  {
    number: 15,
    title: "Is the topic idle, or is its consumer stuck?",
    about:
      "Idle: activity is idle, and last_poll is new. Stuck: messages are behind, and one round has been " +
      "under way for round_running_seconds.",
    sql: [
      "SELECT database, table, activity, activity_since, lag, last_poll, round_running_seconds, reason",
      "FROM system.kafka_tables ORDER BY database, table",
    ].join("\n"),
  },
  {
    number: 16,
    title: "Why are expired rows still there?",
    about: "They go when their part is merged, and this one has no neighbour to be merged with.",
    sql: "EXPLAIN MERGE {table}",
  },
  {
    number: 17,
    title: "Why was a setting refused?",
    sql: "SELECT text, error FROM system.query_log WHERE error_code = 'UNKNOWN_SETTING'",
  },
  {
    number: 18,
    title: "Why are these parts not merged?",
    about: "They are too large: the reason names the setting and both numbers.",
    sql: "EXPLAIN MERGE {table}",
  },
  {
    number: 19,
    title: "Who ended an ALTER, and how far was it?",
    sql: [
      "SELECT database, table, command, is_killed, end_time, parts_done, parts_to_do, state_reason",
      "FROM system.mutations",
      "WHERE is_killed",
    ].join("\n"),
  },
  {
    number: 20,
    title: "When does a pause end?",
    sql: [
      "SELECT database, table, service, switch, until, because, next_wakeup FROM system.bg_threads",
      "WHERE switch = 'stopped' AND until IS NOT NULL",
    ].join("\n"),
  },
  {
    number: 21,
    title: "Why are messages that were sent not read?",
    about: "They are in a transaction that its producer has not committed, uncommitted of them.",
    sql: "SELECT database, table, activity, activity_since, uncommitted, lag, reason FROM system.kafka_tables",
  },
  {
    number: 22,
    title: "Does Spark still answer?",
    about: "A worker that does not is silent, with the reason.",
    sql: "SELECT name, state, reason, last_answer FROM system.workers",
  },
]
