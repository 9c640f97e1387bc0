CREATE TABLE windrow_ledger_2 (
	pipeline TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	recorded TEXT NOT NULL, 
	PRIMARY KEY (pipeline, kind, "key")
);
CREATE TABLE windrow_ledger_2 (
	pipeline TEXT COLLATE "C" NOT NULL, 
	kind TEXT COLLATE "C" NOT NULL, 
	key TEXT COLLATE "C" NOT NULL, 
	value TEXT NOT NULL, 
	recorded TEXT NOT NULL, 
	PRIMARY KEY (pipeline, kind, key)
);
