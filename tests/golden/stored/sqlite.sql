CREATE TABLE windrow_tables (
    name TEXT PRIMARY KEY COLLATE NOCASE, form INTEGER NOT NULL, id TEXT NOT NULL,
    owner TEXT NOT NULL, window_column TEXT NOT NULL, columns BLOB NOT NULL,
    version INTEGER NOT NULL
)
CREATE TABLE windrow_receipts (
    id TEXT, window TEXT, version INTEGER NOT NULL, receipt TEXT NOT NULL, sha256 BLOB NOT NULL,
    PRIMARY KEY (id, window)
)
CREATE TABLE windrow_offsets (
    id TEXT, topic_id TEXT, partition INTEGER, stop INTEGER, start INTEGER NOT NULL,
    window TEXT NOT NULL, PRIMARY KEY (id, topic_id, partition, stop)
)
CREATE INDEX windrow_offsets_of ON windrow_offsets (id, window)
CREATE TABLE windrow_notes (
    id TEXT, name TEXT, value INTEGER NOT NULL, PRIMARY KEY (id, name)
)
CREATE TABLE "orders" ("id" TEXT NOT NULL, "amount" INTEGER, "_topic" TEXT NOT NULL, "_partition" INTEGER NOT NULL, "_offset" INTEGER NOT NULL, "_timestamp" TEXT, "_window" TEXT NOT NULL)
CREATE INDEX windrow_ID ON "orders" ("_window")
CREATE TABLE "orders_dead" ("_topic" TEXT NOT NULL, "_partition" INTEGER NOT NULL, "_offset" INTEGER NOT NULL, "_timestamp" TEXT, "timestamp_type" TEXT NOT NULL, "key" BLOB, "value" BLOB, "headers" TEXT NOT NULL, "leader_epoch" INTEGER, "stage" TEXT NOT NULL, "reason" TEXT NOT NULL, "detail" TEXT, "schema_id" TEXT, "attempt" TEXT NOT NULL, "generation" INTEGER NOT NULL, "pipeline" TEXT NOT NULL, "_window" TEXT NOT NULL)
CREATE INDEX windrow_ID ON "orders_dead" ("_window")
('orders', 2, '{"pipeline":"orders","ledger":"ledger-1","grid":"hourly"}', '_window', 2)
('orders_dead', 2, '{"pipeline":"orders","ledger":"ledger-1","grid":"hourly"}', '_window', 2)
('["dead","2026-01-02T00:00:00Z","orders","a0"]', 1)
('["dead","2026-01-02T00:00:00Z","orders","a1"]', 2)
('ID', 'topic-id-1', 0, 10, 0, '2026-01-02T00:00:00Z')
('ID', 'topic-id-1', 1, 10, 0, '2026-01-02T00:00:00Z')
('2026-01-02T00:00:00Z', 2)
sqlite:FOLDER/orders.db#orders
