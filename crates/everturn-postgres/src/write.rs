//! Writing a row: read, mutation, rules, precondition, and one statement that writes everything or nothing.
//!
//! What is written is computed from a session at one version, mostly as this process remembers it. The statement compares
//! that version and sets the next one, so it writes only if nothing has changed; otherwise all is read again and computed
//! anew. No lock is held while the caller's mutation runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use everturn_agent::store::{Detail, JournalKey, Mutation, Precondition, Scope, admit, id_to_save};
use everturn_agent::{SessionId, SessionState, Snapshot, SnapshotId};
use tokio_postgres::types::Type;

use crate::cache::Document;
use crate::change::{Cut, Plan, Remember};
use crate::connection::{Patience, Statement, column, count};
use crate::fault::{Fault, Outcome};
use crate::inner::Inner;
use crate::known::Tip;
use crate::position::{Position, SessionKey, column as number_column};
use crate::read::View;
use crate::row::{Details, Rest, Stored, StoredState, check_id, optional_text, to_nanos, to_time, to_word};

/// The database's time in nanoseconds since 1970.
pub(crate) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint";

/// How many commits a session remembers by their tokens.
const TOKENS: usize = 8;

/// How a session's tip changes.
enum NextTip {
    Is(Option<Tip>),
    /// It must be looked for, because the row was the tip.
    Search,
}

/// What came of one attempt to commit.
enum Attempt {
    Done(Option<Box<Snapshot>>),
    /// It needs to know what is stored before it goes on.
    Look(Option<SessionKey>),
    /// The statement failed: it lost a race, or its connection.
    Failed {
        fault: Fault,
        session: SessionKey,
        row: Box<Snapshot>,
    },
}

/// What a caller wants to commit.
pub(crate) struct Wish<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) id: Option<&'a SnapshotId>,
    pub(crate) precondition: &'a Precondition,
    pub(crate) mutation: &'a Mutation,
    pub(crate) journals: &'a [JournalKey],
}

impl Inner {
    /// Reads a row, applies the mutation and writes the result. Returns the written row, or `None` if the mutation wrote
    /// nothing.
    pub(crate) async fn commit(&self, wish: &Wish<'_>) -> Outcome<Option<Snapshot>> {
        let begun = Instant::now();
        let id = id_to_save(wish.id);
        check_id("scope", wish.scope.as_str())?;
        check_id("snapshot id", id.as_str())?;
        // Names this commit in the session, whichever of its attempts succeeds.
        let token = fastrand::i64(..);
        let mut patience = Patience::new(self.db.patience);
        let mut view = None;
        loop {
            let look = match self.attempt(wish, &id, token, view.as_ref()).await? {
                Attempt::Done(saved) => {
                    count(&self.db.counters.commits);
                    let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    self.db.counters.commit_nanos.fetch_add(nanos, Ordering::Relaxed);
                    return Ok(saved.map(|row| *row));
                }
                Attempt::Look(session) => (session, None),
                Attempt::Failed { fault, session, row } => {
                    count(&self.db.counters.conflicts);
                    let goes_on = if fault.is_lost() {
                        patience.wait().await
                    } else {
                        patience.wait_turn().await
                    };
                    if !goes_on {
                        return Err(fault);
                    }
                    (Some(session), Some(row))
                }
            };
            let found = self.reading().view(wish.scope, id.as_str(), look.0).await?;
            // A statement whose answer was lost is settled by looking. Until the version has moved it may still arrive;
            // then it fails, because the next attempt has moved the version, or the next attempt does.
            let arrived = |found: &View| {
                found
                    .session
                    .as_ref()
                    .is_some_and(|session| session.tokens.contains(&token))
            };
            if let Some(row) = look.1
                && arrived(&found)
            {
                self.watchers.notice([(wish.scope.clone(), id.clone())]);
                return Ok(Some(*row));
            }
            view = Some(found);
        }
    }

    /// Computes the row from what is stored, or remembered, and tries to write it.
    async fn attempt(
        &self,
        wish: &Wish<'_>,
        id: &SnapshotId,
        token: i64,
        view: Option<&View>,
    ) -> Outcome<Attempt> {
        let before = view.and_then(|view| view.stored.as_ref());
        let existing = match before {
            Some(stored) => match self.reading().snapshot(stored.clone(), Detail::Whole).await {
                Ok(snapshot) => Some(snapshot),
                Err(Fault::Damaged(what)) => return self.still_damaged(wish, id, stored, what).await,
                Err(fault) => return Err(fault),
            },
            None => None,
        };
        // Without a look, the row is taken for new: its id mostly is. If that leads nowhere, it is looked for.
        let applied = wish.mutation.apply(existing.as_ref());
        let row = match applied {
            Ok(Some(row)) => admit(id, existing.as_ref(), row),
            _ if view.is_none() => return Ok(Attempt::Look(None)),
            Ok(None) => return Ok(Attempt::Done(None)),
            Err(error) => Err(error),
        };
        let row = match row {
            Ok(row) => row,
            Err(_) if view.is_none() => return Ok(Attempt::Look(None)),
            Err(error) => return Err(error.into()),
        };
        let session_id = row.session_id.as_ref().expect("an admitted row has a session");
        check_id("session id", session_id.as_str())?;
        if let Some(parent) = &row.parent_id {
            check_id("parent id", parent.as_str())?;
        }
        let session = before.map_or_else(
            || SessionKey::of(wish.scope, session_id.as_str()),
            |row| row.session,
        );
        let verified = view.is_some_and(|view| view.looked == Some(session));
        let known = if verified {
            view.and_then(|view| view.session.as_ref())
                .map(|found| Arc::clone(&found.known))
        } else {
            match self.cache.session(session) {
                None if !begins_session(wish.precondition) => return Ok(Attempt::Look(Some(session))),
                known => known,
            }
        };
        let reading = self.reading();
        let found = match reading
            .found(wish.scope, session, known.as_deref(), wish.precondition, id)
            .await
        {
            Ok(found) => found,
            Err(fault) if fault.is_conflict() => {
                let row = Box::new(row);
                return Ok(Attempt::Failed { fault, session, row });
            }
            Err(fault) => return Err(fault),
        };
        if let Err(error) = wish.precondition.check(session_id, found.as_ref()) {
            if verified {
                // A tip whose row is missing is damage, and named as such.
                reading
                    .latest(wish.scope, session_id.as_str(), Detail::Metadata)
                    .await?;
                return Err(error.into());
            }
            return Ok(Attempt::Look(Some(session)));
        }
        let plan = Plan::new(self, session, known);
        self.write(wish, plan, row, before, existing.as_ref(), token)
            .await
    }

    /// Reads a row again whose parts were missing: if it has changed, it was only read in between.
    async fn still_damaged(
        &self,
        wish: &Wish<'_>,
        id: &SnapshotId,
        stored: &Stored,
        what: String,
    ) -> Outcome<Attempt> {
        match self.reading().find(wish.scope, id.as_str()).await? {
            Some((again, _)) if again.state == stored.state => Err(Fault::Damaged(what)),
            _ => Ok(Attempt::Look(Some(stored.session))),
        }
    }

    async fn write(
        &self,
        wish: &Wish<'_>,
        mut plan: Plan<'_>,
        row: Snapshot,
        before: Option<&Stored>,
        existing: Option<&Snapshot>,
        token: i64,
    ) -> Outcome<Attempt> {
        let own = before.and_then(|before| before.state.as_ref());
        let planned = match &row.state {
            Some(state) => plan.put_state(wish.scope, &row, state, own).await.map(Some),
            None => Ok(None),
        };
        let failed = |fault, row| {
            Ok(Attempt::Failed {
                fault,
                session: plan_session(before, wish.scope, &row),
                row: Box::new(row),
            })
        };
        let state = match planned {
            Ok(state) => state,
            Err(fault) if fault.is_conflict() => return failed(fault, row),
            Err(fault) => return Err(fault),
        };
        let tip = plan.next_tip(&row, existing);
        let statement = plan.statement(wish, &row, state.as_ref(), before.is_some(), &tip, token)?;
        let written = match self.db.run(&statement).await {
            Ok(rows) => rows,
            Err(fault) if fault.is_conflict() || fault.is_lost() => return failed(fault, row),
            Err(fault) => return Err(fault),
        };
        let Some(written) = written.first() else {
            if let Some(place) = plan.foreign {
                // The lineage of another session may be the one that is gone.
                self.cache.forget_place(place);
            }
            return failed(Fault::Moved, row);
        };
        let tip = match tip {
            NextTip::Is(tip) => tip,
            NextTip::Search => match (column::<Option<i64>>(written, 0)?, optional_text(written, 1)?) {
                (Some(at), Some(id)) => Some((to_time(at)?, id.into())),
                _ => None,
            },
        };
        let session = plan.session;
        plan.succeeded(&row, state.as_ref(), tip);
        if existing.is_none_or(|existing| existing.status != row.status) {
            self.watchers
                .notice([(wish.scope.clone(), row.snapshot_id.clone())]);
            if existing.is_some() {
                self.watchers
                    .announce(&(wish.scope.clone(), row.snapshot_id.clone()));
            }
        }
        if let Some(own) = own
            && replaces(own, state.as_ref())
        {
            self.release_replaced(session, own).await;
        }
        Ok(Attempt::Done(Some(Box::new(row))))
    }
}

/// Returns whether a turn of this condition expects no snapshot: it mostly begins the session.
fn begins_session(precondition: &Precondition) -> bool {
    matches!(
        precondition,
        Precondition::Tip(None) | Precondition::Unfollowed { snapshot: None, .. }
    )
}

fn plan_session(before: Option<&Stored>, scope: &Scope, row: &Snapshot) -> SessionKey {
    let name = row.session_id.as_ref().map(SessionId::as_str).unwrap_or_default();
    before.map_or_else(|| SessionKey::of(scope, name), |before| before.session)
}

/// Returns whether a rewritten row no longer refers to a part that it referred to before.
fn replaces(before: &StoredState, after: Option<&StoredState>) -> bool {
    let kept: Vec<i64> = after.into_iter().flat_map(StoredState::documents).collect();
    let messages = after.and_then(|after| after.messages);
    let shrunk = before.messages.is_some_and(|before| {
        messages.is_none_or(|after| after.lineage != before.lineage || after.len < before.len)
    });
    shrunk || before.documents().any(|document| !kept.contains(&document))
}

impl Plan<'_> {
    /// Plans to store the new parts of a state and returns references to all parts.
    async fn put_state(
        &mut self,
        scope: &Scope,
        row: &Snapshot,
        state: &SessionState,
        own: Option<&StoredState>,
    ) -> Outcome<StoredState> {
        let start = self.known_start(&state.messages).await?;
        let documents = state.custom.is_some() || state.prompt_input.is_some() || !state.artifacts.is_empty();
        let parent = match &row.parent_id {
            Some(parent) if documents || start.is_none() => self.parent(scope, parent).await?,
            _ => None,
        };
        let related: Vec<Position> = own
            .into_iter()
            .chain(parent.as_ref().map(|(state, _)| state))
            .filter_map(|state| state.messages)
            .collect();
        let messages = self.put_history(&state.messages, start, &related).await?;
        // Documents are shared within a session only.
        let parent = parent.and_then(|(state, is_own)| is_own.then_some(state));
        let parent = parent.as_ref();
        let artifacts = Some(&state.artifacts).filter(|artifacts| !artifacts.is_empty());
        let custom = state.custom.clone().map(Document::Json);
        let artifacts = artifacts.map(|artifacts| Document::Artifacts(Arc::clone(artifacts)));
        let prompt_input = state.prompt_input.clone().map(Document::Json);
        Ok(StoredState {
            messages,
            custom: self.put(custom, own, parent, |state| state.custom).await?,
            artifacts: self.put(artifacts, own, parent, |state| state.artifacts).await?,
            prompt_input: self
                .put(prompt_input, own, parent, |state| state.prompt_input)
                .await?,
            session_id: state.session_id.clone(),
            extra: state.extra.clone(),
        })
    }

    async fn put(
        &mut self,
        document: Option<Document>,
        own: Option<&StoredState>,
        parent: Option<&StoredState>,
        part: fn(&StoredState) -> Option<i64>,
    ) -> Outcome<Option<i64>> {
        let Some(document) = document else {
            return Ok(None);
        };
        let number = self
            .put_document(&document, own.and_then(part), parent.and_then(part))
            .await?;
        Ok(Some(number))
    }

    /// Returns what the state of the parent refers to, and whether the parent is in the own session.
    async fn parent(&self, scope: &Scope, parent: &SnapshotId) -> Outcome<Option<(StoredState, bool)>> {
        if let Some((id, state)) = &self.known.row
            && id == parent
        {
            return Ok(state.clone().map(|state| (state, true)));
        }
        let Some((stored, version)) = self.reading().find(scope, parent.as_str()).await? else {
            return Ok(None);
        };
        let is_own = stored.session == self.session;
        if is_own && (self.is_new || version != self.known.version) {
            return Err(Fault::Moved);
        }
        Ok(stored.state.map(|state| (state, is_own)))
    }

    fn next_tip(&self, row: &Snapshot, existing: Option<&Snapshot>) -> NextTip {
        let tip = self.known.tip.as_ref();
        let was_tip = tip.is_some_and(|(_, id)| *id == row.snapshot_id);
        let stays = existing.is_some_and(|existing| {
            existing.created_at == row.created_at && existing.orphaned == row.orphaned
        });
        if was_tip && !stays {
            return NextTip::Search;
        }
        let own = (row.created_at, row.snapshot_id.clone());
        let is_ahead = !row.orphaned && tip.is_none_or(|tip| *tip < own);
        NextTip::Is(if is_ahead { Some(own) } else { tip.cloned() })
    }

    fn statement(
        &self,
        wish: &Wish<'_>,
        row: &Snapshot,
        state: Option<&StoredState>,
        exists: bool,
        tip: &NextTip,
        token: i64,
    ) -> Outcome<Statement<'static>> {
        let mut statement = Statement::default();
        let tenant = statement.bind(self.session.tenant, Type::INT4);
        let session = statement.bind(self.session.id, Type::UUID);
        let scope = statement.bind(wish.scope.as_str().as_bytes().to_vec(), Type::BYTEA);
        let id = statement.bind(row.snapshot_id.as_str().as_bytes().to_vec(), Type::BYTEA);
        let names = Names {
            tenant,
            session,
            scope,
            id,
        };
        let mut parts = Vec::new();
        let held = self.hold_foreign(&mut statement, &names, &mut parts)?;
        self.compare_and_set(&mut statement, &names, wish, row, tip, token, held, &mut parts)?;
        self.insert_parts(&mut statement, &names, &mut parts)?;
        self.write_row(&mut statement, &names, row, state, exists, &mut parts)?;
        drop_journals(&mut statement, &names, wish, &mut parts);
        statement.sql = format!("WITH {} SELECT tip_at, tip FROM cas", parts.join(", "));
        Ok(statement)
    }

    /// Locks the lineage of another session against deletion, and checks that the position is still there.
    fn hold_foreign(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        parts: &mut Vec<String>,
    ) -> Outcome<bool> {
        let Some(at) = self.change.foreign else {
            return Ok(false);
        };
        let owner = statement.bind(at.lineage.session.id, Type::UUID);
        let number = statement.bind(at.lineage.number, Type::INT8);
        let len = statement.bind(number_column(at.len)?, Type::INT4);
        let tenant = &names.tenant;
        parts.push(format!(
            "held AS (SELECT 1 FROM @lineage WHERE tenant = {tenant} AND session = {owner} AND number = {number} \
             AND base < {len} AND (cut IS NULL OR cut >= {len}) FOR KEY SHARE)"
        ));
        Ok(true)
    }

    #[expect(clippy::too_many_arguments, reason = "one part of one statement")]
    fn compare_and_set(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        wish: &Wish<'_>,
        row: &Snapshot,
        tip: &NextTip,
        token: i64,
        held: bool,
        parts: &mut Vec<String>,
    ) -> Outcome<()> {
        let Names {
            tenant,
            session,
            scope,
            id,
        } = names;
        let (tip_at, tip) = match tip {
            NextTip::Is(tip) => {
                let at = tip.as_ref().map(|(at, _)| to_nanos(*at)).transpose()?;
                let id = tip.as_ref().map(|(_, id)| id.as_str().as_bytes().to_vec());
                (statement.bind(at, Type::INT8), statement.bind(id, Type::BYTEA))
            }
            NextTip::Search => {
                let own_at = statement.bind(
                    (!row.orphaned).then(|| to_nanos(row.created_at)).transpose()?,
                    Type::INT8,
                );
                parts.push(format!(
                    "best AS (SELECT at, id FROM ((SELECT created_at AS at, id FROM @snapshot WHERE tenant = {tenant} \
                     AND session = {session} AND NOT orphaned AND id <> {id} ORDER BY created_at DESC, id DESC LIMIT 1) \
                     UNION ALL (SELECT {own_at}, {id} WHERE {own_at} IS NOT NULL)) AS kept ORDER BY at DESC, id DESC LIMIT 1)"
                ));
                (
                    "(SELECT at FROM best)".to_owned(),
                    "(SELECT id FROM best)".to_owned(),
                )
            }
        };
        let token = statement.bind(token, Type::INT8);
        let held = if held {
            "EXISTS (SELECT 1 FROM held)"
        } else {
            "true"
        };
        let version = statement.bind(self.known.version, Type::INT8);
        parts.push(if self.is_new {
            let name = row.session_id.as_ref().map(SessionId::as_str).unwrap_or_default();
            let name = statement.bind(name.as_bytes().to_vec(), Type::BYTEA);
            let _ = wish;
            format!(
                "cas AS (INSERT INTO @session (tenant, key, version, tip_at, touched_at, tip, scope, name, tokens) \
                 SELECT {tenant}, {session}, {version} + 1, {tip_at}, {NOW}, {tip}, {scope}, {name}, ARRAY[{token}] \
                 WHERE {held} ON CONFLICT DO NOTHING RETURNING tip_at, tip)"
            )
        } else {
            format!(
                "cas AS (UPDATE @session SET version = version + 1, tip_at = {tip_at}, tip = {tip}, \
                 tokens = (ARRAY[{token}] || tokens)[1:{TOKENS}] \
                 WHERE tenant = {tenant} AND key = {session} AND version = {version} AND {held} RETURNING tip_at, tip)"
            )
        });
        Ok(())
    }

    /// Inserts the lineage, the messages, the documents and the blobs.
    fn insert_parts(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        parts: &mut Vec<String>,
    ) -> Outcome<()> {
        let Names { tenant, session, .. } = names;
        let change = &self.change;
        if let Some((number, parent)) = &change.lineage {
            let number = statement.bind(*number, Type::INT8);
            let base = statement.bind(number_column(parent.map_or(0, |parent| parent.len))?, Type::INT4);
            let parent_session = statement.bind(parent.map(|parent| parent.lineage.session.id), Type::UUID);
            let parent = statement.bind(parent.map(|parent| parent.lineage.number), Type::INT8);
            parts.push(format!(
                "line AS (INSERT INTO @lineage (tenant, session, number, parent_session, parent, base) \
                 SELECT {tenant}, {session}, {number}, {parent_session}, {parent}, {base} FROM cas)"
            ));
        }
        let messages = &change.messages;
        if !messages.numbers.is_empty() {
            let lineage = statement.bind(messages.lineage, Type::INT8);
            let numbers = statement.bind(messages.numbers.clone(), Type::INT4_ARRAY);
            let cuts = statement.bind(messages.cuts.clone(), Type::INT4_ARRAY);
            let bodies = statement.bind(messages.bodies.clone(), Type::BYTEA_ARRAY);
            parts.push(format!(
                "said AS (INSERT INTO @message (tenant, session, lineage, number, cuts, body) \
                 SELECT {tenant}, {session}, {lineage}, new.* FROM cas, unnest({numbers}, {cuts}, {bodies}) AS new)"
            ));
            if !messages.pieces.is_empty() {
                let numbers: Vec<i32> = messages
                    .pieces
                    .iter()
                    .map(|cut| i32::try_from(cut.number).unwrap_or(i32::MAX))
                    .collect();
                let numbers = statement.bind(numbers, Type::INT4_ARRAY);
                let (places, hashes) = bind_cuts(statement, &messages.pieces);
                parts.push(format!(
                    "said_cut AS (INSERT INTO @message_blob (tenant, session, lineage, number, place, hash) \
                     SELECT {tenant}, {session}, {lineage}, new.* FROM cas, unnest({numbers}, {places}, {hashes}) AS new)"
                ));
            }
        }
        self.insert_documents(statement, names, parts);
        if !change.blobs.is_empty() {
            let hashes: Vec<Vec<u8>> = change.blobs.iter().map(|(hash, _)| hash.to_vec()).collect();
            let bodies: Vec<Vec<u8>> = change.blobs.iter().map(|(_, body)| body.clone()).collect();
            let hashes = statement.bind(hashes, Type::BYTEA_ARRAY);
            let bodies = statement.bind(bodies, Type::BYTEA_ARRAY);
            parts.push(format!(
                "long AS (INSERT INTO @blob (tenant, session, hash, body) \
                 SELECT {tenant}, {session}, new.* FROM cas, unnest({hashes}, {bodies}) AS new ON CONFLICT DO NOTHING)"
            ));
        }
        Ok(())
    }

    fn insert_documents(&self, statement: &mut Statement<'_>, names: &Names, parts: &mut Vec<String>) {
        let Names { tenant, session, .. } = names;
        let documents = &self.change.documents;
        if documents.is_empty() {
            return;
        }
        let numbers: Vec<i64> = documents.iter().map(|document| document.number).collect();
        let bases: Vec<Option<i64>> = documents.iter().map(|document| document.base).collect();
        let depths: Vec<i32> = documents.iter().map(|document| document.depth).collect();
        let cuts: Vec<i32> = documents.iter().map(|document| document.cuts).collect();
        let bodies: Vec<Vec<u8>> = documents.iter().map(|document| document.body.clone()).collect();
        let numbers = statement.bind(numbers, Type::INT8_ARRAY);
        let bases = statement.bind(bases, Type::INT8_ARRAY);
        let depths = statement.bind(depths, Type::INT4_ARRAY);
        let cuts = statement.bind(cuts, Type::INT4_ARRAY);
        let bodies = statement.bind(bodies, Type::BYTEA_ARRAY);
        parts.push(format!(
            "kept AS (INSERT INTO @document (tenant, session, number, base, depth, cuts, body) \
             SELECT {tenant}, {session}, new.* FROM cas, \
             unnest({numbers}, {bases}, {depths}, {cuts}, {bodies}) AS new)"
        ));
        let pieces = &self.change.document_pieces;
        if !pieces.is_empty() {
            let numbers: Vec<i64> = pieces.iter().map(|cut| cut.number).collect();
            let numbers = statement.bind(numbers, Type::INT8_ARRAY);
            let (places, hashes) = bind_cuts(statement, pieces);
            parts.push(format!(
                "kept_cut AS (INSERT INTO @document_blob (tenant, session, number, place, hash) \
                 SELECT {tenant}, {session}, new.* FROM cas, unnest({numbers}, {places}, {hashes}) AS new)"
            ));
        }
    }

    /// Inserts or updates the row itself.
    fn write_row(
        &self,
        statement: &mut Statement<'_>,
        names: &Names,
        row: &Snapshot,
        state: Option<&StoredState>,
        exists: bool,
        parts: &mut Vec<String>,
    ) -> Outcome<()> {
        let Names {
            tenant,
            session,
            scope,
            id,
        } = names;
        let messages = state.and_then(|state| state.messages);
        let owner = messages
            .map(|at| at.lineage.session)
            .filter(|owner| *owner != self.session);
        let (repeats_session, rest) = Rest::of(row, state)?;
        let encoder = self.store.encoder;
        let packed = |text: Option<String>| text.map(|text| encoder.pack(&text)).transpose();
        let up_to = match state {
            Some(_) => Some(number_column(messages.map_or(0, |messages| messages.len))?),
            None => None,
        };
        let mut columns = Vec::new();
        let mut values = Vec::new();
        let mut set = |name: &'static str, value: String| {
            columns.push(name);
            values.push(value);
        };
        let parent = row
            .parent_id
            .as_ref()
            .map(|parent| parent.as_str().as_bytes().to_vec());
        set("parent", statement.bind(parent, Type::BYTEA));
        set(
            "created_at",
            statement.bind(to_nanos(row.created_at)?, Type::INT8),
        );
        let updated_at = row.updated_at.map(to_nanos).transpose()?;
        set("updated_at", statement.bind(updated_at, Type::INT8));
        let heartbeat_at = row.heartbeat_at.map(to_nanos).transpose()?;
        set("heartbeat_at", statement.bind(heartbeat_at, Type::INT8));
        set("status", statement.bind(to_word(&row.status)?, Type::TEXT));
        let finish_reason = row.finish_reason.as_ref().map(to_word).transpose()?;
        set("finish_reason", statement.bind(finish_reason, Type::TEXT));
        let event = row.event.as_ref().map(to_word).transpose()?;
        set("event", statement.bind(event, Type::TEXT));
        set(
            "number",
            statement.bind(row.index.map(u64::cast_signed), Type::INT8),
        );
        set(
            "turn",
            statement.bind(row.turn_index.map(u64::cast_signed), Type::INT8),
        );
        set("orphaned", statement.bind(row.orphaned, Type::BOOL));
        set("details", statement.bind(packed(Details::of(row)?)?, Type::BYTEA));
        set(
            "lineage",
            statement.bind(messages.map(|at| at.lineage.number), Type::INT8),
        );
        set(
            "line_session",
            statement.bind(owner.map(|owner| owner.id), Type::UUID),
        );
        set("up_to", statement.bind(up_to, Type::INT4));
        set(
            "custom",
            statement.bind(state.and_then(|state| state.custom), Type::INT8),
        );
        set(
            "artifacts",
            statement.bind(state.and_then(|state| state.artifacts), Type::INT8),
        );
        set(
            "prompt_input",
            statement.bind(state.and_then(|state| state.prompt_input), Type::INT8),
        );
        set("named", statement.bind(repeats_session, Type::BOOL));
        set("rest", statement.bind(packed(rest)?, Type::BYTEA));
        let (columns, values) = (columns.join(", "), values.join(", "));
        parts.push(if exists {
            format!(
                "written AS (UPDATE @snapshot s SET ({columns}) = ROW ({values}) FROM cas \
                 WHERE s.tenant = {tenant} AND s.scope = {scope} AND s.id = {id})"
            )
        } else {
            format!(
                "written AS (INSERT INTO @snapshot (tenant, session, scope, id, {columns}) \
                 SELECT {tenant}, {session}, {scope}, {id}, {values} FROM cas)"
            )
        });
        Ok(())
    }

    /// Remembers what the commit made true.
    fn succeeded(mut self, row: &Snapshot, state: Option<&StoredState>, tip: Option<Tip>) {
        let cache = &self.store.cache;
        for fact in self.remember {
            match fact {
                Remember::History {
                    lineage,
                    history,
                    bytes,
                } => cache.learn_history(lineage, &history, bytes),
                Remember::Document {
                    number,
                    document,
                    depth,
                    bytes,
                } => cache.learn_document((self.session, number), &document, depth, bytes),
            }
        }
        self.known.version += 1;
        self.known.tip = tip;
        self.known.row = Some((row.snapshot_id.clone(), state.cloned()));
        self.known.guard = None;
        cache.learn_session(self.session, Arc::new(self.known));
    }
}

/// The parameters that most parts of the statement share.
struct Names {
    tenant: String,
    session: String,
    scope: String,
    id: String,
}

fn bind_cuts(statement: &mut Statement<'_>, cuts: &[Cut]) -> (String, String) {
    let places: Vec<i32> = cuts.iter().map(|cut| cut.place).collect();
    let hashes: Vec<Vec<u8>> = cuts.iter().map(|cut| cut.hash.to_vec()).collect();
    (
        statement.bind(places, Type::INT4_ARRAY),
        statement.bind(hashes, Type::BYTEA_ARRAY),
    )
}

fn drop_journals(statement: &mut Statement<'_>, names: &Names, wish: &Wish<'_>, parts: &mut Vec<String>) {
    if wish.journals.is_empty() {
        return;
    }
    let key = |key: &JournalKey| SessionKey::of(wish.scope, key.session().as_str()).id;
    let sessions: Vec<_> = wish.journals.iter().map(key).collect();
    let turns: Vec<Vec<u8>> = wish
        .journals
        .iter()
        .map(|key| key.turn().as_bytes().to_vec())
        .collect();
    let sessions = statement.bind(sessions, Type::UUID_ARRAY);
    let turns = statement.bind(turns, Type::BYTEA_ARRAY);
    let tenant = &names.tenant;
    parts.push(format!(
        "over AS (DELETE FROM @journal j USING cas, unnest({sessions}, {turns}) AS turns (session, turn) \
         WHERE j.tenant = {tenant} AND j.session = turns.session AND j.turn = turns.turn)"
    ));
}
