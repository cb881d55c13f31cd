CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE spec (
	job_id INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (job_id)
);
CREATE TABLE outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	token VARCHAR NOT NULL, 
	job_id INTEGER NOT NULL, 
	cluster VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	payload TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	tries INTEGER NOT NULL, 
	next_try_at FLOAT NOT NULL, 
	error TEXT NOT NULL, 
	UNIQUE (token)
);
CREATE INDEX outbox_job ON outbox (job_id);
CREATE TABLE timer (
	job_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	due FLOAT NOT NULL, 
	payload TEXT NOT NULL, 
	PRIMARY KEY (job_id, name)
);
CREATE TABLE timeline (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id INTEGER NOT NULL, 
	task VARCHAR NOT NULL, 
	at FLOAT NOT NULL, 
	start VARCHAR NOT NULL, 
	"end" VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	cause VARCHAR NOT NULL, 
	text TEXT NOT NULL
);
CREATE INDEX timeline_job ON timeline (job_id, seq);
CREATE TABLE meta (
	"key" VARCHAR NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE "job" (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	cluster VARCHAR NOT NULL, 
	handle VARCHAR NOT NULL, 
	native_id VARCHAR NOT NULL, 
	cursor VARCHAR NOT NULL, 
	priority INTEGER, 
	submitted_at FLOAT NOT NULL, 
	ended_at FLOAT, 
	facts TEXT NOT NULL, 
	array_id INTEGER, 
	PRIMARY KEY (id)
);
CREATE INDEX job_window ON job (ended_at, submitted_at, user);
CREATE INDEX job_array ON job (array_id);
CREATE TABLE schedule (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	version INTEGER NOT NULL, 
	user VARCHAR NOT NULL, 
	source VARCHAR NOT NULL, 
	facts TEXT NOT NULL, 
	request TEXT NOT NULL
);
CREATE TABLE crontab (
	user VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (user)
);
INSERT INTO alembic_version VALUES ('0003');
INSERT INTO meta VALUES ('format', '1');
