"""The seeded faults. Each is found by the test named beside it; `make test-mutants` shows it."""

from tests.mutants.mutant import Mutant, mutant

CRASH_MODEL = "tests/model/test_agent.py::test_agent_keeps_its_promises_whatever_happens"
TABLE = "tests/model/test_table.py::test_no_way_leads_to_a_second_post"
SAME_MACHINE = "tests/model/test_table.py::test_table_and_store_reach_the_same_states"
SAME_CALLS = (
    "tests/model/test_table.py::test_every_call_in_every_state_is_legal_in_both_or_in_neither"
)
POWER = "tests/power/test_power_loss.py::test_sampled_power_losses_lose_nothing_that_was_promised"
STORE = "tests/integration/test_store.py"
APPROVER = "tests/integration/test_approver.py"
REPOSTS = "tests/integration/test_reposts.py"
INTAKE = "tests/integration/test_intake.py"
DECIDE = "tests/unit/test_decide.py"
COMMANDS = "tests/unit/test_commands.py"
POST = "tests/integration/test_start_request.py"
DAMAGE = "tests/power/test_damage.py"
SIGNED = "tests/integration/test_signed_commands.py"
SIGNATURES = "tests/integration/test_signatures.py"
SIGNING = "tests/unit/test_signing.py"

STORE_FAULTS: tuple[Mutant, ...] = (
    mutant(
        "commits are not synced (NORMAL)",
        POWER,
        ("store/connection.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"),
        ("store/connection.py", "SYNCHRONOUS_FULL = 2", "SYNCHRONOUS_FULL = 1"),
    ),
    mutant(
        "commits are not synced (OFF)",
        f"{STORE}::test_a_commit_is_on_the_disk",
        ("store/connection.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF"),
        ("store/connection.py", "SYNCHRONOUS_FULL = 2", "SYNCHRONOUS_FULL = 0"),
    ),
    mutant(
        "the pragmas are not read back",
        f"{STORE}::test_a_weaker_setting_is_refused",
        ("store/connection.py", "    if got != wanted:", "    if False:"),
    ),
    mutant(
        "two agents may share a ledger",
        f"{STORE}::test_a_second_agent_is_locked_out",
        (
            "store/connection.py",
            '"locking_mode = EXCLUSIVE", "exclusive"',
            '"locking_mode", "normal"',
        ),
    ),
    mutant(
        "work goes on after an I/O error",
        "tests/power/test_io_errors.py::test_after_a_failed_fsync_the_store_refuses_all_work",
        ("store/connection.py", "        if self._broken:", "        if False:"),
    ),
    mutant(
        "a failed transaction is not rolled back",
        f"{STORE}::test_recovery_is_all_or_nothing",
        ("store/connection.py", 'self.raw.execute("ROLLBACK")', 'self.raw.execute("COMMIT")'),
    ),
    mutant(
        "sending stays in the WAL",
        f"{DAMAGE}::test_a_lost_wal_never_posts_again",
        ("store/store.py", "        self._database.checkpoint()\n", ""),
    ),
    mutant(
        "a POST begins without a durable ledger",
        "tests/power/test_io_errors.py::test_a_full_disk_keeps_the_stream_and_stops_approvals",
        ("store/store.py", "        if not self.durable:\n", "        if False:\n"),
    ),
    mutant(
        "recovery takes a cut-off POST for unsent",
        TABLE,
        (
            "store/store.py",
            'move(db, row["event_id"], "sending", "in-doubt", now)',
            'move(db, row["event_id"], "sending", "accepted", now, http_status=429)',
        ),
        (
            "store/store.py",
            "\"UPDATE posts SET ended_at = ?, result = 'crash'\"",
            "\"UPDATE posts SET ended_at = ?, result = 'crash', counted = 0, http_status = 429\"",
        ),
    ),
    mutant(
        "recovery does not answer",
        f"{STORE}::test_recovery_leaves_a_doubt_and_says_so",
        (
            "store/store.py",
            '                self._settle(db, row, draft, now, status="in-doubt", reason="in-doubt")\n',
            "",
        ),
    ),
    mutant(
        "a POST may begin in any state",
        f"{STORE}::test_a_second_post_cannot_begin",
        (
            "store/ledger.py",
            "WHERE event_id = ? AND state = ? RETURNING *",
            "WHERE event_id = ? AND ? <> '' RETURNING *",
        ),
        (
            "store/schema.sql",
            "CREATE UNIQUE INDEX posts_at_most_one ON",
            "CREATE INDEX posts_at_most_one ON",
        ),
        ("store/schema.sql", "WHEN NEW.state <> OLD.state\n", "WHEN NEW.state = 'never'\n"),
    ),
    mutant(
        "the promise's index is not unique, and a doubt does not bar accepting",
        f"{STORE}::test_raw_sql_cannot_send_twice",
        (
            "store/schema.sql",
            "CREATE UNIQUE INDEX posts_at_most_one ON",
            "CREATE INDEX posts_at_most_one ON",
        ),
    ),
    mutant(
        "the state machine is not checked by SQL",
        f"{STORE}::test_raw_sql_cannot_send_twice",
        ("store/schema.sql", "WHEN NEW.state <> OLD.state\n", "WHEN NEW.state = 'never'\n"),
        ("store/schema.sql", "AND NEW.http_status IS NOT 429", "AND NEW.http_status = 0"),
    ),
    mutant(
        "SQL knows one move more than the core",
        f"{STORE}::test_the_schema_knows_the_same_moves",
        (
            "store/schema.sql",
            "  ('approved', 'confirmed');",
            "  ('approved', 'confirmed'), ('approved', 'accepted');",
        ),
    ),
    mutant(
        "an approved event may be held by another command",
        SAME_CALLS,
        (
            "store/ledger.py",
            'not in {"rejected", "in-doubt"}',
            'not in {"rejected", "in-doubt", "approved"}',
        ),
        (
            "store/schema.sql",
            "  ('approved', 'confirmed');",
            "  ('approved', 'confirmed'), ('approved', 'accepted');",
        ),
    ),
    mutant(
        "a doubt needs no override",
        SAME_CALLS,
        (
            "store/schema.sql",
            "WHEN OLD.state = 'in-doubt' AND NEW.state = 'accepted' AND NEW.override <> 1",
            "WHEN OLD.state = 'in-doubt' AND NEW.state = 'accepted' AND NEW.override > 9",
        ),
    ),
    mutant(
        "a lost answer is booked as refused",
        f"{STORE}::test_no_refusal_no_second_try",
        (
            "store/store.py",
            '        if state in {"rejected", "accepted"} and not refused:',
            "        if False:",
        ),
        (
            "store/store.py",
            "refused = http_status in UNCOUNTED_STATUSES",
            "refused = http_status != 200",
        ),
        ("store/schema.sql", "AND NEW.http_status IS NOT 429", "AND NEW.http_status = 0"),
        (
            "store/schema.sql",
            " AND (NEW.counted = 1 OR NEW.http_status NOT IN (400, 403, 404, 405, 429) OR NEW.http_status IS NULL)",
            " AND NEW.counted = 1",
        ),
    ),
    mutant(
        "a 500 does not count",
        f"{STORE}::test_raw_sql_cannot_send_twice",
        (
            "store/schema.sql",
            "NEW.http_status NOT IN (400, 403, 404, 405, 429) OR NEW.http_status IS NULL",
            "NEW.http_status NOT IN (400, 403, 404, 405, 429, 500) OR NEW.http_status IS NULL",
        ),
    ),
    mutant(
        "posts may be deleted",
        f"{STORE}::test_raw_sql_cannot_send_twice",
        (
            "store/schema.sql",
            "CREATE TRIGGER posts_stay BEFORE DELETE ON posts\nBEGIN",
            "CREATE TRIGGER posts_stay BEFORE DELETE ON posts WHEN 0\nBEGIN",
        ),
    ),
    mutant(
        "commands are forgotten",
        f"{STORE}::test_an_answered_command_is_kept",
        (
            "store/schema.sql",
            "CREATE TRIGGER commands_stay BEFORE DELETE ON commands\nBEGIN",
            "CREATE TRIGGER commands_stay BEFORE DELETE ON commands WHEN 0\nBEGIN",
        ),
    ),
    mutant(
        "any POST may be waived",
        f"{STORE}::test_raw_sql_cannot_send_twice",
        (
            "store/schema.sql",
            "WHEN NEW.waived <> OLD.waived AND NOT EXISTS",
            "WHEN NEW.waived > 1 AND NOT EXISTS",
        ),
    ),
    mutant(
        "an overridden doubt becomes a refusal",
        f"{APPROVER}::test_approver_override_that_comes_to_nothing_leaves_the_doubt",
        (
            "store/ledger.py",
            'return "in-doubt" if row and row["override"] else "rejected"',
            'return "rejected"',
        ),
        (
            "store/schema.sql",
            "WHEN OLD.state IN ('accepted', 'sending') AND OLD.override = 1 AND NEW.state = 'rejected'",
            "WHEN OLD.state = 'never' AND OLD.override = 1 AND NEW.state = 'rejected'",
        ),
    ),
    mutant(
        "a command is answered twice",
        f"{STORE}::test_a_repost_answers_no_second_time",
        ("store/store.py", "        if command.answer is not None:\n            return\n", ""),
        ("store/schema.sql", "WHEN OLD.answer IS NOT NULL\n", "WHEN OLD.answer = ''\n"),
    ),
    mutant(
        "a replay gets a new id",
        f"{STORE}::test_an_answer_is_kept_and_repeated",
        (
            "store/store.py",
            "cloudevent=cloudevents.as_replay(command.answer)",
            "cloudevent=cloudevents.as_replay(command.answer).replace(self.ledger_id.encode(), b'x')",
        ),
    ),
    mutant(
        "the command and its approval are two transactions",
        POWER,
        (
            "store/store.py",
            "            insert_command(db, row)\n            hold(",
            "            insert_command(db, row)\n            db.execute('COMMIT')\n            db.execute('BEGIN')\n            hold(",
        ),
    ),
    mutant(
        "the cursor goes back",
        f"{STORE}::test_no_sink_waits_for_another",
        ("store/outbox.py", "SET sequence = max(sequence, ?)", "SET sequence = ?"),
    ),
    mutant(
        "a dead sink's rows are dropped with the others'",
        f"{STORE}::test_no_sink_waits_for_another",
        (
            "store/outbox.py",
            "(SELECT min(sequence) FROM cursors)",
            "(SELECT max(sequence) FROM cursors)",
        ),
    ),
    mutant(
        "sequence numbers start again",
        f"{STORE}::test_a_full_disk_degrades_and_the_same_call_passes",
        (
            "store/opening.py",
            'last = max(int(get_meta(raw, "sequence") or 0), first_sequence(now) - 1)',
            'last = int(get_meta(raw, "sequence") or 0)',
        ),
    ),
    mutant(
        "a doubt is confirmed while the POST is on its way",
        f"{STORE}::test_the_schema_knows_the_same_moves",
        (
            "store/outbox.py",
            "state IN ('approved', 'in-doubt') RETURNING",
            "state IN ('approved', 'in-doubt', 'sending') RETURNING",
        ),
        (
            "store/schema.sql",
            "  ('approved', 'confirmed');",
            "  ('approved', 'confirmed'), ('sending', 'confirmed');",
        ),
    ),
    mutant(
        "a ledger that contradicts itself is used",
        f"{DAMAGE}::test_a_ledger_that_contradicts_itself_is_moved_aside",
        (
            "store/checks.py",
            "            if raw.execute(query).fetchone():",
            "            if False:",
        ),
    ),
    mutant(
        "rows that belong together are not compared",
        f"{DAMAGE}::test_a_ledger_that_contradicts_itself_is_moved_aside",
        ("store/checks.py", 'if raw.execute("PRAGMA foreign_key_check").fetchone():', "if False:"),
    ),
    mutant(
        "a new ledger after damage knows of no loss",
        f"{STORE}::test_a_corrupt_ledger_is_moved_aside",
        (
            "store/opening.py",
            "prepare(database, now, vm_id, lost=damage_mark(path).exists())",
            "prepare(database, now, vm_id, lost=False)",
        ),
    ),
    mutant(
        "an older ledger without its triggers is taken as it is",
        "tests/power/test_opening.py::test_an_older_ledger_without_its_safeguards_is_moved_aside",
        ("store/migrations.py", "if shape(raw) != _shape_of_a_new_ledger():", "if False:"),
    ),
    mutant(
        "a damaged ledger is met again and again",
        f"{DAMAGE}::test_a_row_that_cannot_be_read_is_met_once",
        (
            "store/connection.py",
            "                damage_mark(self.path).touch(mode=0o600)\n",
            "                pass\n",
        ),
    ),
)

APPROVER_FAULTS: tuple[Mutant, ...] = (
    mutant(
        "the first byte leaves before sending is durable",
        f"{APPROVER}::test_approver_order_is_the_promise",
        (
            "approver.py",
            "        number = self._store.begin_post(row.event_id, self._clock.now())\n",
            "        early = await connection.post(row.azure_event_id, 1)\n        number = self._store.begin_post(row.event_id, self._clock.now())\n",
        ),
    ),
    mutant(
        "sending is durable before the connection is there",
        f"{APPROVER}::test_approver_no_connection_means_not_sent",
        (
            "approver.py",
            "            connection = await self._connect()\n",
            "            self._store.begin_post(row.event_id, self._clock.now())\n            connection = await self._connect()\n",
        ),
    ),
    mutant(
        "a lost answer is tried again",
        f"{APPROVER}::test_approver_each_answer_of_imds_is_final",
        (
            "approver.py",
            '        if status == 429 and now < row.expires_at:\n            self._store.finish_post(\n                number, state="accepted", http_status=429,',
            '        if status in (429, None) and now < row.expires_at:\n            self._store.finish_post(\n                number, state="accepted", http_status=429,',
        ),
    ),
    mutant(
        "a 500 is tried again",
        f"{APPROVER}::test_approver_each_answer_of_imds_is_final",
        (
            "approver.py",
            "        if status == 429 and now < row.expires_at:",
            "        if status in (429, 500) and now < row.expires_at:",
        ),
    ),
    mutant(
        "a frozen agent sends late",
        f"{APPROVER}::test_approver_frozen_between_sending_and_the_first_byte_sends_nothing",
        ("approver.py", "if began_s - looked_at_s > _FROZEN_S:", "if False:"),
    ),
    mutant(
        "a log that blocks does not count as standing still",
        f"{APPROVER}::test_approver_log_that_blocks_counts_as_standing_still",
        (
            "approver.py",
            "        number = self._store.begin_post(row.event_id, self._clock.now())\n",
            "        looked_at_s = self._clock.elapsed_s()\n        number = self._store.begin_post(row.event_id, self._clock.now())\n",
        ),
    ),
    mutant(
        "the event is not looked at again after connecting",
        f"{APPROVER}::test_approver_event_that_changed_while_connecting_is_not_posted",
        (
            "approver.py",
            "            looked_at_s = self._clock.elapsed_s()\n            refusal = self._refusal(row)\n",
            "            looked_at_s = self._clock.elapsed_s()\n            refusal = None\n",
        ),
    ),
    mutant(
        "a stale document is good enough",
        f"{APPROVER}::test_approver_document_that_went_stale_is_waited_for",
        (
            "approver.py",
            "            if self._document() is None:\n                return False\n",
            "",
        ),
    ),
    mutant(
        "the approval is not announced before it is made",
        f"{APPROVER}::test_approver_order_is_the_promise",
        ("approver.py", "        await self._flush(self._flush_time_s(row, document))\n", ""),
    ),
    mutant(
        "a doubt is posted again without being configured",
        f"{APPROVER}::test_approver_doubt_is_only_watched_by_default",
        ("approver.py", 'if self._config.in_doubt != "repost":', "if False:"),
        ("reposts.py", 'if config.in_doubt != "repost":', "if False:"),
    ),
    mutant(
        "nobody comes back for a doubt",
        f"{REPOSTS}::test_repost_comes_by_itself_until_imds_answers",
        ("approver.py", "repost_s = self._reposts.delay_s(self._doubts())", "repost_s = None"),
    ),
    mutant(
        "a doubt is posted again after NotBefore",
        f"{REPOSTS}::test_repost_is_never_made_after_not_before",
        ("reposts.py", "if not_before and now >= not_before:", "if False:"),
    ),
    mutant(
        "a doubt is posted again after its sender was told rejected",
        f"{REPOSTS}::test_repost_under_a_key_that_was_answered_rejected_is_not_made",
        ("reposts.py", 'if row.command.status != "in-doubt":', "if False:"),
    ),
    mutant(
        "every wake posts a doubt again",
        f"{REPOSTS}::test_repost_wakes_do_not_hasten_it",
        (
            "reposts.py",
            "if due_at_s is not None and due_at_s <= self._clock.elapsed_s():",
            "if due_at_s is not None:",
        ),
    ),
    mutant(
        "an expired command is sent",
        f"{APPROVER}::test_approver_expired_before_it_could_be_sent",
        (
            "approver.py",
            "        if now >= row.expires_at:\n            if document",
            "        if False:\n            if document",
        ),
    ),
    mutant(
        "accepted approvals are answered from memory",
        "tests/model/test_regressions.py::test_disk_full_after_accepting_leaves_the_answer_to_the_next_start",
        ("approver.py", "        if not self._store.durable:\n            return None\n", ""),
        (
            "approver.py",
            "if not self._store.durable:  # the disk filled up mean",
            "if False:  # mean",
        ),
    ),
    mutant(
        "a POST that the file calls unfinished is answered from memory",
        f"{APPROVER}::test_approver_disk_that_fills_during_the_post_leaves_the_answer_to_the_next_start",
        ("approver.py", "if not self._store.durable:  # the disk filled up during", "if False:  #"),
    ),
    mutant(
        "a hub's command is answered from memory",
        f"{INTAKE}::test_intake_command_of_a_hub_waits_for_the_next_start_when_the_disk_is_full",
        ("intake.py", "if incoming.position is None or self._store.durable:", "if True:"),
    ),
    mutant(
        "a reused key is refused anew each time",
        f"{INTAKE}::test_intake_reused_key_is_refused_once_and_repeated",
        ("answers.py", 'if reject.reason == "key-reused":', "if False:"),
    ),
    mutant(
        "a sender is blamed for the time that IMDS was away",
        f"{INTAKE}::test_intake_gives_up_when_the_command_expires",
        ("intake.py", '"too-old") if has_waited:', '"too-old") if False:'),
    ),
    mutant(
        "shadow mode uses up a rule's approval",
        f"{INTAKE}::test_intake_shadow_leaves_the_rule_its_approval",
        ("intake.py", '"auto:shadow" if', '"auto" if'),
    ),
    mutant(
        "the command is acked before its row is durable",
        CRASH_MODEL,
        (
            "intake.py",
            "            await self._decide(incoming, command)\n        else:",
            "            incoming.ack()\n            await self._decide(incoming, command)\n            return\n        else:",
        ),
    ),
    mutant(
        "retained commands are obeyed",
        f"{INTAKE}::test_intake_retained_command_is_refused_unread",
        ("intake.py", "        if wire.retained:", "        if False:"),
    ),
    mutant(
        "a row is marked before the broker has it",
        CRASH_MODEL,
        (
            "publisher.py",
            "            await self._sink.publish(batch)\n",
            "            self._mark(batch)\n            await self._sink.publish(batch)\n",
        ),
    ),
    mutant(
        "document and transitions are two transactions",
        CRASH_MODEL,
        (
            "poller.py",
            "        self._store.record(raw, drafts, confirmed, self._clock.now())\n",
            "        self._store.record(raw, [], confirmed, self._clock.now())\n        self._store.record(raw, drafts, [], self._clock.now())\n",
        ),
    ),
)

DECISION_FAULTS: tuple[Mutant, ...] = (
    mutant(
        "the same key with another body is taken for a replay",
        f"{DECIDE}::test_decide_of_two_faults_the_earlier_gives_the_reason",
        ("core/decide.py", "if situation.key_fingerprint == command.fingerprint:", "if True:"),
    ),
    mutant(
        "a command for another VM is obeyed",
        f"{DECIDE}::test_decide_of_two_faults_the_earlier_gives_the_reason",
        (
            "core/decide.py",
            "if command.vm and command.vm.casefold() != rules.vm_name.casefold():",
            "if False:",
        ),
    ),
    mutant(
        "expiry is not looked at",
        f"{DECIDE}::test_decide_of_two_faults_the_earlier_gives_the_reason",
        (
            "core/decide.py",
            "if command.expires_at is not None and now >= command.expires_at:",
            "if False:",
        ),
    ),
    mutant(
        "age is not looked at",
        f"{DECIDE}::test_decide_edges",
        (
            "core/decide.py",
            "if command.expires_at is None and age_s > rules.max_age_s:",
            "if False:",
        ),
    ),
    mutant(
        "an approval on its way does not bar another",
        f"{DECIDE}::test_decide_every_cell",
        (
            "core/decide.py",
            'if entry is None or entry.state == "rejected":',
            'if entry is None or entry.state in ("rejected", "sending"):',
        ),
    ),
    mutant(
        "a doubt does not bar another command",
        f"{DECIDE}::test_decide_every_cell",
        ("core/decide.py", 'if "in-doubt" in command.override:', "if True:"),
    ),
    mutant(
        "a started event is approved",
        f"{DECIDE}::test_decide_every_cell",
        (
            "core/decide.py",
            "    if not scheduled_event.is_scheduled:\n        state",
            "    if False:\n        state",
        ),
    ),
    mutant(
        "a neighbour's event is approved",
        f"{DECIDE}::test_decide_of_two_faults_the_earlier_gives_the_reason",
        ("core/decide.py", "    if not scheduled_event.names(rules.vm_name):", "    if False:"),
    ),
    mutant(
        "expectations on resources are ignored",
        f"{DECIDE}::test_decide_of_two_faults_the_earlier_gives_the_reason",
        (
            "core/decide.py",
            "if expected is not None and folded(expected) != folded(scheduled_event.resources):",
            "if False:",
        ),
    ),
    mutant(
        "a missing token passes where one is required",
        f"{DECIDE}::test_decide_edges",
        (
            "core/decide.py",
            "if command.token is None and not rules.require_token:",
            "if command.token is None:",
        ),
    ),
    mutant(
        "an empty token is as good as any",
        f"{DECIDE}::test_decide_edges",
        (
            "core/decide.py",
            "if command.token != situation.token or not situation.token:",
            "if command.token != situation.token:",
        ),
    ),
    mutant(
        "the fence does not hold after a lost ledger",
        f"{DECIDE}::test_decide_edges",
        (
            "core/decide.py",
            "if rules.fence_first_document or situation.ledger_lost:",
            "if rules.fence_first_document:",
        ),
    ),
    mutant(
        "everybody is leader",
        f"{DECIDE}::test_decide_events_of_several_vms",
        (
            "core/decide.py",
            'if "leader" in command.override or is_leader(scheduled_event, rules.vm_name):',
            "if True:",
        ),
    ),
    mutant(
        "changed resources are posted",
        f"{DECIDE}::test_recheck_refuses_an_event_that_is_no_longer_the_same",
        (
            "core/decide.py",
            "    if folded(current.resources) != folded(entry_event.resources):",
            "    if False:",
        ),
    ),
    mutant(
        "shadow mode posts",
        f"{DECIDE}::test_decide_every_cell",
        ("core/decide.py", 'if rules.mode == "shadow":', "if False:"),
    ),
    mutant(
        "a redirect or 5xx is taken for a refusal",
        f"{DECIDE}::test_post_result_of_every_status",
        (
            "core/approvals.py",
            "if status == 429 or status in REFUSED_STATUSES:",
            "if status and status != 200:",
        ),
    ),
    mutant(
        "any 2xx is taken for an approval",
        f"{DECIDE}::test_post_result_of_every_status",
        ("core/approvals.py", "    if status == 200:", "    if status and 200 <= status < 300:"),
    ),
    mutant(
        "the core lets a doubt be forgotten",
        f"{DECIDE}::test_moves_lead_back_only_from_what_did_not_count",
        (
            "core/approvals.py",
            '"approved": frozenset({"confirmed"}),',
            '"approved": frozenset({"confirmed", "accepted"}),',
        ),
    ),
    mutant(
        "unknown keys in a command are ignored",
        f"{COMMANDS}::test_decode_bad_field_is_malformed_and_named",
        ("core/commands.py", '    _refuse_unknown(data, _DATA_KEYS, "data")\n', ""),
    ),
    mutant(
        "any override is taken",
        f"{COMMANDS}::test_decode_bad_field_is_malformed_and_named",
        ("core/commands.py", "        if name not in OVERRIDES:", "        if False:"),
    ),
    mutant(
        "a time without a zone is taken",
        f"{COMMANDS}::test_decode_bad_field_is_malformed_and_named",
        ("core/commands.py", "    if not re.fullmatch(RFC_3339, text):", "    if not text:"),
    ),
    mutant(
        "the last of two equal properties wins",
        f"{COMMANDS}::test_decode_bad_binary_command_is_malformed",
        ("core/commands.py", "    if len(attributes) != len(pairs):", "    if False:"),
    ),
    mutant(
        "one body is as good as another under a key",
        f"{COMMANDS}::test_fingerprint_tells_one_body_from_another",
        (
            "core/commands.py",
            'return hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()',
            "return 'same'",
        ),
    ),
)

POST_FAULTS: tuple[Mutant, ...] = (
    mutant(
        "a connection carries several requests",
        f"{POST}::test_connection_carries_one_request_only",
        ("start_request.py", "        if self._used:\n", "        if False:\n"),
        ("start_request.py", "Connection: close", "Connection: keep-alive"),
    ),
    mutant(
        "garbage is taken for a 400",
        f"{POST}::test_lost_answer_is_in_doubt",
        (
            "core/http_answer.py",
            '                raise ValueError(f"not an HTTP answer: {excerpt(line, characters_max=60)}")\n',
            "                self.status = 400\n                return\n",
        ),
    ),
    mutant(
        "an interim answer is the answer",
        f"{POST}::test_interim_answer_is_skipped",
        (
            "core/http_answer.py",
            "            if int(found[2]) >= 200:",
            "            if int(found[2]) >= 100:",
        ),
    ),
    mutant(
        "half a status line is enough",
        f"{POST}::test_lost_answer_is_in_doubt",
        ("core/http_answer.py", '(?: ([^\\r\\n]*))?\\r?\\n")', '(?: ([^\\r\\n]*))?(?:\\r?\\n)?")'),
        (
            "core/http_answer.py",
            '            raise ConnectionResetError("the connection ended before the answer")\n',
            '            self._came += b"\\n"\n',
        ),
    ),
    mutant(
        "the answer is waited for without end",
        f"{POST}::test_late_answer_is_in_doubt",
        (
            "start_request.py",
            "            async with asyncio.timeout(timeout_s):\n                connection.ask",
            "            async with asyncio.timeout(1e6):\n                connection.ask",
        ),
    ),
    mutant(
        "a failed connection is retried with the request",
        f"{POST}::test_connection_refused_proves_that_nothing_left",
        ("start_request.py", "; nothing was sent, check imds.endpoint", "; check imds.endpoint"),
    ),
    mutant(
        "a line break in the version splits the request",
        f"{POST}::test_unusable_address_is_refused_before_connecting",
        (
            "imds_wire.py",
            'if not re.fullmatch(r"[!-~]+", self.host + target):',
            "if False:",
        ),
    ),
)

SIGNATURE_FAULTS: tuple[Mutant, ...] = (
    mutant(
        "an unsigned command is believed",
        f"{SIGNED}::test_bad_signature_changes_nothing_and_uses_up_no_key",
        (
            "intake.py",
            "if isinstance(parts, Parts) and self._verify:",
            'if isinstance(parts, Parts) and self._verify and "dssematerial" in parts.attributes:',
        ),
    ),
    mutant(
        "any signature is good",
        f"{SIGNATURES}::test_stranger_is_refused_even_under_a_trusted_name",
        (
            "signatures.py",
            "        except InvalidSignature:\n            return False\n",
            "        except InvalidSignature:\n            return True\n",
        ),
    ),
    mutant(
        "an unknown key is trusted",
        f"{SIGNATURES}::test_stranger_is_refused_even_under_a_trusted_name",
        (
            "signatures.py",
            "        if key is None:\n            return False\n",
            "        if key is None:\n            return True\n",
        ),
    ),
    mutant(
        "a revoked key is believed",
        f"{SIGNATURES}::test_revocation_counts_at_once_and_can_be_taken_back",
        (
            "signatures.py",
            "(name for name in good if name not in revoked)",
            "(name for name in good)",
        ),
    ),
    mutant(
        "without the list of revoked keys all are believed",
        f"{SIGNATURES}::test_revocation_file_that_cannot_be_read_stops_everything",
        (
            "signatures.py",
            "        except ConfigError as error:\n            return Unverified(str(error))\n",
            "        except ConfigError:\n            revoked = frozenset()\n",
        ),
    ),
    mutant(
        "the signature need not fit the command",
        f"{SIGNING}::test_covered_any_changed_attribute_is_refused",
        (
            "core/signing.py",
            'if not hmac.compare_digest(_digest_of(signed.get("core")), _core_digest(parts)):',
            "if False:",
        ),
    ),
    mutant(
        "expiry and key need not be signed",
        f"{SIGNING}::test_covered_a_deciding_extension_must_be_signed",
        (
            "core/signing.py",
            "        if name not in names and not _is_empty(parts.attributes.get(name)):",
            "        if False:",
        ),
    ),
)

WATCH_FAULTS: tuple[Mutant, ...] = (
    mutant(
        "a rule that denies by source lets an unknown source pass",
        "tests/unit/test_policy.py::test_evaluate_first_match_wins",
        ("core/policy.py", 'self.action == "deny" and not source', "False"),
    ),
    mutant(
        "one 400 takes down a version that worked",
        "tests/integration/test_imds.py"
        "::test_ladder_takes_a_400_to_a_version_that_worked_for_a_fault",
        (
            "imds.py",
            "if self._was_accepted and self._refusals < REFUSALS_BELIEVED:",
            "if False:",
        ),
    ),
    mutant(
        "an event that left this VM is not told to its end",
        "tests/integration/test_poller.py::test_poller_event_that_leaves_us_is_still_told",
        ("poller.py", " or transition.scheduled_event.key in known.tokens:", ":"),
    ),
    mutant(
        "a failed poll is no gap",
        "tests/integration/test_poller.py::test_poller_failed_poll_is_a_gap",
        ("poller.py", "self._failures > 0 or age_s is None", "age_s is None"),
    ),
)

MUTANTS = (
    *STORE_FAULTS,
    *APPROVER_FAULTS,
    *DECISION_FAULTS,
    *POST_FAULTS,
    *SIGNATURE_FAULTS,
    *WATCH_FAULTS,
)
