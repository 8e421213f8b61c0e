-- The ledger and the outbox. One writer, one connection, WAL, synchronous = FULL.
-- PRAGMA user_version is the schema's version; bridge/store/migrations.py moves older files up.

-- Facts about the ledger itself: ledger_id, sequence, vm_id, identity, snapshot and the like.
-- `schema` is a digest of the tables and triggers below: a migration has to write it anew.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Every scheduled event of ours that is still pending.
CREATE TABLE pending (
  event_id   TEXT PRIMARY KEY,             -- case-folded
  token      TEXT NOT NULL,                -- published with the event, repeated in commands
  fenced     INTEGER NOT NULL DEFAULT 0,   -- was pending already when the ledger was created
  newest     BLOB                          -- its newest CloudEvent, as published
) STRICT, WITHOUT ROWID;

-- What is to be published, in order. A row goes when every sink has it.
CREATE TABLE outbox (
  sequence    INTEGER PRIMARY KEY,         -- the order of everything that leaves
  channel     TEXT NOT NULL CHECK (channel IN ('events', 'outcomes')),
  event_id    TEXT NOT NULL,               -- as IMDS spells it; '' when no event is named
  ends        INTEGER NOT NULL DEFAULT 0,  -- this transition ends its event
  cloudevent  BLOB NOT NULL,               -- structured JSON, final
  reply_topic TEXT NOT NULL DEFAULT '',    -- MQTT 5 Response Topic of the command, if allowed
  correlation BLOB,                        -- MQTT 5 Correlation Data of the command
  created_at  TEXT NOT NULL
) STRICT;

-- How far each sink has come: a dead one never holds back another.
CREATE TABLE cursors (
  sink     TEXT PRIMARY KEY,
  sequence INTEGER NOT NULL                -- everything up to here is acknowledged or parked
) STRICT, WITHOUT ROWID;

-- Rows that a sink can never take (too large): kept for the operator.
CREATE TABLE parked (
  sink       TEXT NOT NULL,
  sequence   INTEGER NOT NULL,
  reason     TEXT NOT NULL,
  cloudevent BLOB NOT NULL,
  parked_at  TEXT NOT NULL,
  PRIMARY KEY (sink, sequence)
) STRICT, WITHOUT ROWID;

-- How far each partition of a command source was read, in the transaction that used the command.
CREATE TABLE offsets (
  source   TEXT PRIMARY KEY,               -- hub and partition
  position TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Every command, for ever, by its idempotency key, with the one answer it got.
CREATE TABLE commands (
  key          TEXT PRIMARY KEY,
  fingerprint  TEXT NOT NULL,              -- SHA-256 of the command's data
  command_id   TEXT NOT NULL,
  source       TEXT NOT NULL,              -- who asked
  event_id     TEXT NOT NULL,              -- as the command spelt it
  why          TEXT NOT NULL DEFAULT '',   -- the reason the sender gave
  rule         TEXT NOT NULL DEFAULT '',   -- the policy rule that spoke
  status       TEXT NOT NULL DEFAULT '',   -- '' until answered
  reason       TEXT NOT NULL DEFAULT '',
  http_status  INTEGER,
  received_at  TEXT NOT NULL,
  expires_at   TEXT NOT NULL,              -- tried until then; = received_at if answered at once
  answered_at  TEXT,
  answer       BLOB,                       -- the outcome's CloudEvent, final
  reply_topic  TEXT NOT NULL DEFAULT '',
  correlation  BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX commands_received ON commands (received_at);

-- One row an EventId, for ever: the state machine of bridge/core/approvals.py.
CREATE TABLE approvals (
  event_id       TEXT PRIMARY KEY,         -- case-folded
  azure_event_id TEXT NOT NULL,            -- as IMDS spells it: this goes into the POST
  state          TEXT NOT NULL,
  key            TEXT NOT NULL REFERENCES commands (key),
  event_type     TEXT NOT NULL,            -- what was decided on: compared again before the POST
  resources      TEXT NOT NULL,            -- JSON list
  override       INTEGER NOT NULL DEFAULT 0, -- the command may leave a doubt behind
  http_status    INTEGER,
  updated_at     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Every POST that ever began, for ever. `counted` is 1 until IMDS itself says that it did nothing.
CREATE TABLE posts (
  number      INTEGER PRIMARY KEY,
  event_id    TEXT NOT NULL REFERENCES approvals (event_id),
  key         TEXT NOT NULL,
  began_at    TEXT NOT NULL,
  ended_at    TEXT,
  http_status INTEGER,
  result      TEXT NOT NULL DEFAULT '',
  counted     INTEGER NOT NULL DEFAULT 1 CHECK (counted IN (0, 1)),
  waived      INTEGER NOT NULL DEFAULT 0 CHECK (waived IN (0, 1)) -- a person overrode the doubt
) STRICT;

-- The promise, in one line: no second POST while an earlier one may have counted.
CREATE UNIQUE INDEX posts_at_most_one ON posts (event_id) WHERE counted = 1 AND waived = 0;

-- The legal moves of approvals.MOVES; '' is "no row yet".
CREATE TABLE moves (
  old TEXT NOT NULL,
  new TEXT NOT NULL,
  PRIMARY KEY (old, new)
) STRICT, WITHOUT ROWID;

INSERT INTO moves VALUES
  ('', 'accepted'),
  ('accepted', 'sending'), ('accepted', 'rejected'), ('accepted', 'in-doubt'),
  ('sending', 'approved'), ('sending', 'in-doubt'), ('sending', 'rejected'), ('sending', 'accepted'),
  ('in-doubt', 'confirmed'), ('in-doubt', 'accepted'),
  ('rejected', 'accepted'),
  ('approved', 'confirmed');

CREATE TRIGGER approvals_begin BEFORE INSERT ON approvals
WHEN NOT EXISTS (SELECT 1 FROM moves WHERE old = '' AND new = NEW.state)
BEGIN SELECT RAISE(ABORT, 'an approval begins as accepted'); END;

CREATE TRIGGER approvals_move BEFORE UPDATE ON approvals
WHEN NEW.state <> OLD.state
 AND NOT EXISTS (SELECT 1 FROM moves WHERE old = OLD.state AND new = NEW.state)
BEGIN SELECT RAISE(ABORT, 'the state machine has no such move'); END;

CREATE TRIGGER approvals_back_after_429 BEFORE UPDATE ON approvals
WHEN OLD.state = 'sending' AND NEW.state = 'accepted' AND NEW.http_status IS NOT 429
BEGIN SELECT RAISE(ABORT, 'only a 429 leads back from sending'); END;

CREATE TRIGGER approvals_back_after_override BEFORE UPDATE ON approvals
WHEN OLD.state = 'in-doubt' AND NEW.state = 'accepted' AND NEW.override <> 1
BEGIN SELECT RAISE(ABORT, 'only an override leads back from in-doubt'); END;

-- An overriding command that came to nothing leaves the old doubt where it was.
CREATE TRIGGER approvals_doubt_remains BEFORE UPDATE ON approvals
WHEN OLD.state IN ('accepted', 'sending') AND OLD.override = 1 AND NEW.state = 'rejected'
BEGIN SELECT RAISE(ABORT, 'an overridden doubt cannot become a refusal'); END;

CREATE TRIGGER approvals_no_doubt_without_post BEFORE UPDATE ON approvals
WHEN OLD.state = 'accepted' AND NEW.state = 'in-doubt' AND OLD.override <> 1
BEGIN SELECT RAISE(ABORT, 'nothing was sent, so nothing is in doubt'); END;

CREATE TRIGGER approvals_stay BEFORE DELETE ON approvals
BEGIN SELECT RAISE(ABORT, 'approvals are kept for ever'); END;

CREATE TRIGGER approvals_keep_identity BEFORE UPDATE OF event_id, azure_event_id ON approvals
WHEN NEW.event_id <> OLD.event_id
BEGIN SELECT RAISE(ABORT, 'an approval belongs to one event'); END;

CREATE TRIGGER posts_need_sending BEFORE INSERT ON posts
WHEN NOT EXISTS (SELECT 1 FROM approvals WHERE event_id = NEW.event_id AND state = 'sending')
BEGIN SELECT RAISE(ABORT, 'a POST begins in state sending'); END;

CREATE TRIGGER posts_uncount BEFORE UPDATE OF counted ON posts
WHEN NEW.counted <> OLD.counted
 AND (NEW.counted = 1 OR NEW.http_status NOT IN (400, 403, 404, 405, 429) OR NEW.http_status IS NULL)
BEGIN SELECT RAISE(ABORT, 'a POST stops counting only when IMDS refused it'); END;

CREATE TRIGGER posts_waive BEFORE UPDATE OF waived ON posts
WHEN NEW.waived <> OLD.waived AND NOT EXISTS (
  SELECT 1 FROM approvals WHERE event_id = OLD.event_id AND state = 'in-doubt')
BEGIN SELECT RAISE(ABORT, 'only a doubt can be overridden'); END;

CREATE TRIGGER posts_stay BEFORE DELETE ON posts
BEGIN SELECT RAISE(ABORT, 'posts are kept for ever'); END;

CREATE TRIGGER commands_stay BEFORE DELETE ON commands
BEGIN SELECT RAISE(ABORT, 'commands are kept for ever'); END;

CREATE TRIGGER commands_answer_once BEFORE UPDATE OF answer ON commands
WHEN OLD.answer IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a command is answered once'); END;
