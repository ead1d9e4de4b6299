//! The completion half: takes completions from the queue that the kernel writes and hands each out once.
//!
//! The queue is the truth. A slot's direct completion is a hint for who waits for one ticket: it is believed only
//! while no other lap of the slot can have written it, and the queue's entry for the same task is dropped when it
//! comes. A task counts as in flight until its completion was both consumed and delivered, so that the kernel never
//! overruns the queue and nothing that is parked here ever lacks room.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::QueueConfig;
use super::error::WaitError;
use super::link::LinkError;
use super::outcome::{Completion, Outcome};
use super::patience::{Next, Patience};
use super::ready::Ready;
use super::ring::Place;
use super::shared::Shared;
use super::table::{EARLY, Found, READY};
use super::ticket::Ticket;
use super::words::{Memory, Words};
use crate::protocol::{completion, outlet, slot};

/// Entries that one look of a wait consumes at most, so that a flood of others can't hide its own completion.
const DRAIN: u32 = 64;
/// Empty polls between two looks at the clock.
const QUIET_POLLS: u32 = 256;
/// How long polls may stay empty, with tasks pending, until the link is asked whether the kernel still moves.
const QUIET: Duration = Duration::from_millis(100);
/// How long an entry that names no task in flight may lie at the head of the queue: its task was entered by another
/// core before it was published, so it is bound to be seen in far less.
const STRAY: Duration = Duration::from_millis(10);

/// Takes completions; there is one for each pair of queues, and it can be sent to the thread that needs it.
pub struct CompletionQueue<W: Words = Memory> {
    shared: Arc<Shared<W>>,
    /// Ticket of the next entry.
    head: u32,
    /// What is left of the range that was taken from the queue last.
    range: Span,
    /// For each slot how many laps have been consumed, modulo 2^32.
    consumed: Box<[u32]>,
    ready: Ready,
    /// For each level its first node in `ready`, then how many of its tasks have finished.
    levels: Box<[Tally]>,
    /// Tasks that were delivered and whose entries have not come.
    early: u64,
    empty_polls: u32,
    quiet_since: Option<Instant>,
    stray_since: Option<Instant>,
    strays: u64,
    link_error: Option<LinkError>,
}

/// What the completion queue keeps of a level.
#[derive(Clone, Copy, Debug)]
struct Tally {
    first_node: u32,
    finished: u64,
}

/// Tasks in a row, all Done with result 0, of which one entry tells.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// Low 32 bits of the next one's position.
    name: u32,
    /// The outcome word of each.
    outcome: u32,
    left: u32,
    /// The next one's position and place, once one of the range has been found: places in a row need no division.
    next: Option<(u64, Place)>,
}

/// A completion that was consumed and not delivered.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    level: u32,
    found: Found,
    result: u32,
    outcome: u32,
}

impl<W: Words> CompletionQueue<W> {
    pub(super) fn new(shared: Arc<Shared<W>>, config: &QueueConfig) -> Self {
        let mut nodes = 0;
        let levels = shared.levels.iter().map(|level| {
            let first_node = nodes;
            nodes += level.table.len();
            Tally { first_node, finished: 0 }
        });
        let levels = levels.collect();
        Self {
            head: config.first_ticket,
            range: Span::default(),
            consumed: vec![config.first_lap as u32; shared.slots as usize].into(),
            ready: Ready::new(nodes),
            levels,
            early: 0,
            empty_polls: 0,
            quiet_since: None,
            stray_since: None,
            strays: 0,
            link_error: None,
            shared,
        }
    }

    /// Takes the next completion, if there is one.
    ///
    /// With tasks pending and the kernel gone it has the kernel launched again; what that says is kept for
    /// [`link_error`](Self::link_error).
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.take() {
            self.empty_polls = 0;
            self.quiet_since = None;
            return Some(completion);
        }
        if self.wants_turn() {
            self.link_error = self.shared.turn(Duration::ZERO).err();
            return self.take();
        }
        None
    }

    /// Waits until the task with `ticket` has ended and takes its completion; others are kept for later calls.
    ///
    /// A `deadline` of zero looks only.
    ///
    /// # Errors
    /// [`WaitError::Timeout`] when the task does not end in time; it can be waited for again. The others say that the
    /// ticket has no completion to wait for, or that the kernel can't finish it.
    pub fn wait(&mut self, ticket: Ticket, deadline: Duration) -> Result<Completion, WaitError> {
        if let Some(completion) = self.look(ticket)? {
            return Ok(completion);
        }
        let mut patience = Patience::new(deadline);
        loop {
            let next = patience.next(self.shared.kernel_has_left());
            let looked = match next {
                Next::Turn(time) => self.turn(time),
                Next::Look | Next::Over(_) => Ok(()),
            };
            if let Some(completion) = self.look(ticket)? {
                return Ok(completion);
            }
            looked?;
            if let Next::Over(waited) = next {
                let (taken, alive) = (self.was_taken(ticket), !self.shared.kernel_has_left());
                return Err(WaitError::Timeout { ticket, waited, taken, alive });
            }
        }
    }

    /// Waits until any task has ended and takes its completion.
    ///
    /// # Errors
    /// [`WaitError::Quiet`] when none ends in time, or why the kernel can't finish any.
    pub fn wait_any(&mut self, deadline: Duration) -> Result<Completion, WaitError> {
        if let Some(completion) = self.take() {
            return Ok(completion);
        }
        let mut patience = Patience::new(deadline);
        loop {
            // With nothing pending there is nothing to launch for: another thread may push yet.
            let left = self.shared.kernel_has_left();
            let next = patience.next(left && self.shared.pending() > 0);
            let looked = match next {
                Next::Turn(time) => self.turn(time),
                Next::Look | Next::Over(_) => Ok(()),
            };
            if let Some(completion) = self.take() {
                return Ok(completion);
            }
            looked?;
            if let Next::Over(waited) = next {
                return Err(WaitError::Quiet { waited, outstanding: self.outstanding(), alive: !left });
            }
        }
    }

    /// Tasks that were pushed and whose completions are not delivered or not consumed, of all levels.
    pub fn outstanding(&self) -> u64 {
        self.shared.outstanding()
    }

    /// Tasks that were pushed and that the kernel has not finished, with their user data: what to push anew after a
    /// loss.
    pub fn unfinished(&self) -> impl Iterator<Item = (Ticket, u64)> + '_ {
        (0..).zip(&self.shared.levels).flat_map(|(number, level)| {
            let pending = level.table.iter().filter(|found| found.flags == 0);
            pending.map(move |found| (Ticket::new(number, found.position), level.table.user_data(found)))
        })
    }

    /// What the last poll that looked after the kernel was told, if that was an error.
    pub fn link_error(&self) -> Option<LinkError> {
        self.shared.lost().or(self.link_error)
    }

    /// Entries of the completion queue that named no task in flight and were dropped: 0 while kernel and host agree.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Takes the oldest completion that is parked, else the next of the queue.
    #[inline]
    fn take(&mut self) -> Option<Completion> {
        if let Some(node) = self.ready.first() {
            return self.take_parked(node);
        }
        self.arrive().map(|arrival| self.deliver(arrival))
    }

    #[cold]
    fn take_parked(&mut self, node: u32) -> Option<Completion> {
        let level = self.levels.iter().rposition(|level| level.first_node <= node)? as u32;
        let index = node - self.levels[level as usize].first_node;
        let found = self.shared.levels[level as usize].table.read(index)?;
        let (result, outcome) = self.ready.take(node);
        self.settle();
        Some(self.deliver(Arrival { level, found, result, outcome }))
    }

    /// Looks once whether the task has ended.
    fn look(&mut self, ticket: Ticket) -> Result<Option<Completion>, WaitError> {
        let Some(found) = self.find(ticket)? else {
            return Err(WaitError::AlreadyDelivered(ticket));
        };
        if found.flags == READY {
            let node = self.levels[ticket.level() as usize].first_node + found.index;
            return Ok(self.take_parked(node));
        }
        for _ in 0..DRAIN {
            match self.arrive() {
                None => break,
                Some(arrival) if arrival.level == ticket.level() && arrival.found.position == ticket.position() => {
                    return Ok(Some(self.deliver(arrival)));
                }
                Some(arrival) => self.park(arrival),
            }
        }
        Ok(self.look_at_slot(ticket, found))
    }

    /// Finds a ticket's task among those in flight; None when its completion was delivered.
    fn find(&self, ticket: Ticket) -> Result<Option<Found>, WaitError> {
        let Some(level) = self.shared.levels.get(ticket.level() as usize) else {
            return Err(WaitError::NeverIssued(ticket));
        };
        let position = ticket.position();
        if position < level.start() || position >= level.tail() {
            return Err(WaitError::NeverIssued(ticket));
        }
        let found = level.table.find(position as u32);
        Ok(found.filter(|found| found.position == position && found.flags != EARLY))
    }

    /// Takes the task's completion from its slot's own word, where that can be believed.
    fn look_at_slot(&mut self, ticket: Ticket, found: Found) -> Option<Completion> {
        let level = &self.shared.levels[ticket.level() as usize];
        let place = level.ring.place(ticket.position());
        let at = outlet::direct_at(self.shared.slots, place.slot);
        // Acquire: pairs with the kernel's store of the phase, the last of the four words.
        if self.shared.outlet.load(at + completion::PHASE) != place.generation() {
            return None;
        }
        let word = |offset| self.shared.outlet.load(at + offset);
        let (result, position, outcome) =
            (word(completion::RESULT), word(completion::POSITION), word(completion::OUTCOME));
        // An earlier lap that is not consumed may be storing its completion over this one, and so may a later lap
        // that was pushed before the words above were read.
        let earlier = self.consumed[place.slot as usize] != place.lap as u32;
        let later = level.tail() > ticket.position() + u64::from(level.ring.slots());
        if earlier || later || position != ticket.position() as u32 {
            return None;
        }
        let user_data = level.table.user_data(found);
        level.table.mark(found, EARLY);
        self.early += 1;
        self.settle();
        Some(Completion { ticket, user_data, outcome: Outcome::from_word(outcome), result })
    }

    /// Consumes entries until one has not been delivered early; None when no more have come.
    #[inline]
    fn arrive(&mut self) -> Option<Arrival> {
        // Ends: there are at most as many entries that were delivered early as tasks in flight.
        loop {
            let (result, name, outcome) = self.head_task()?;
            let level = (outcome >> completion::LEVEL_SHIFT) & slot::LEVEL_MASK;
            let found = self.shared.levels.get(level as usize).and_then(|level| level.table.find(name));
            let Some(found) = found.filter(|found| found.flags != READY) else {
                if self.drop_stray() {
                    continue;
                }
                return None;
            };
            self.consume();
            let tenant = outcome >> completion::TENANT_SHIFT;
            if tenant != 0 {
                self.shared.tenants.leave(tenant);
            }
            let ring = &self.shared.levels[level as usize].ring;
            let place = match self.range.next {
                Some((position, place)) if position == found.position => place,
                _ => ring.place(found.position),
            };
            self.range.next = (self.range.left > 0).then(|| (found.position + 1, ring.next(place)));
            let consumed = &mut self.consumed[place.slot as usize];
            *consumed = consumed.wrapping_add(1);
            if found.flags != EARLY {
                return Some(Arrival { level, found, result, outcome });
            }
            self.early -= 1;
            self.settle();
            self.finish(level, found);
        }
    }

    /// Result, name and outcome word of the next task that the queue tells of.
    #[inline]
    fn head_task(&mut self) -> Option<(u32, u32, u32)> {
        if self.range.left > 0 {
            return Some((0, self.range.name, self.range.outcome));
        }
        let at = outlet::entry_at(self.shared.slots, self.shared.entries, self.head);
        // Acquire: pairs with the kernel's store of the phase, the last of the four words.
        if self.shared.outlet.load(at + completion::PHASE) != self.head.wrapping_add(1) {
            return None;
        }
        let word = |offset| self.shared.outlet.load(at + offset);
        let (result, name, outcome) = (word(completion::RESULT), word(completion::POSITION), word(completion::OUTCOME));
        let left = (outcome >> completion::FAULT_SHIFT) & completion::FAULT_MASK;
        if outcome & completion::RANGE == 0 || left == 0 {
            return Some((result, name, outcome));
        }
        // The entry is used up here: the kernel may write another once the range's tasks are delivered.
        self.head = self.head.wrapping_add(1);
        let outcome = outcome & (completion::RANGE - 1);
        self.range = Span { name, outcome, left, next: None };
        Some((0, name, outcome))
    }

    /// Goes on to the task after the one at the head.
    #[inline]
    fn consume(&mut self) {
        if self.range.left > 0 {
            self.range.name = self.range.name.wrapping_add(1);
            self.range.left -= 1;
        } else {
            self.head = self.head.wrapping_add(1);
        }
    }

    /// Decides about the entry at the head, which names no task in flight; true where it was dropped.
    #[cold]
    fn drop_stray(&mut self) -> bool {
        let since = *self.stray_since.get_or_insert_with(Instant::now);
        if since.elapsed() < STRAY {
            return false;
        }
        self.stray_since = None;
        self.strays += 1;
        self.consume();
        true
    }

    /// Keeps a consumed completion for later.
    fn park(&mut self, arrival: Arrival) {
        self.shared.levels[arrival.level as usize].table.mark(arrival.found, READY);
        let node = self.levels[arrival.level as usize].first_node + arrival.found.index;
        self.ready.park(node, arrival.result, arrival.outcome);
        self.settle();
    }

    /// Hands a consumed completion out.
    #[inline]
    fn deliver(&mut self, arrival: Arrival) -> Completion {
        let Arrival { level, found, result, outcome } = arrival;
        let user_data = self.shared.levels[level as usize].table.user_data(found);
        self.finish(level, found);
        let ticket = Ticket::new(level, found.position);
        Completion { ticket, user_data, outcome: Outcome::from_word(outcome), result }
    }

    /// Ends a task that was consumed and delivered: frees its entry, then its share of the window.
    #[inline]
    fn finish(&mut self, level: u32, found: Found) {
        let shared = &self.shared.levels[level as usize];
        shared.table.free(found);
        let tally = &mut self.levels[level as usize];
        tally.finished += 1;
        shared.finish(tally.finished);
    }

    fn settle(&self) {
        self.shared.settle(self.ready.len() + self.early);
    }

    /// True where an empty poll should look after the launch.
    #[cold]
    fn wants_turn(&mut self) -> bool {
        if self.shared.kernel_has_left() {
            return self.shared.pending() > 0 && self.shared.lost().is_none();
        }
        self.empty_polls += 1;
        if self.empty_polls < QUIET_POLLS {
            return false;
        }
        self.empty_polls = 0;
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        if since.elapsed() < QUIET {
            return false;
        }
        self.quiet_since = None;
        self.shared.pending() > 0
    }

    /// Looks after the launch while waiting.
    fn turn(&mut self, patience: Duration) -> Result<(), LinkError> {
        let result = self.shared.lost().map_or_else(|| self.shared.turn(patience), Err);
        self.link_error = result.err();
        result
    }

    /// True where the kernel has taken the task in.
    fn was_taken(&self, ticket: Ticket) -> bool {
        let place = self.shared.levels[ticket.level() as usize].ring.place(ticket.position());
        let taken = self.shared.outlet.load(outlet::taken_at(place.slot));
        // A later lap's generation says so as well.
        taken.wrapping_sub(place.generation()) < 1 << 31
    }
}

impl<W: Words> fmt::Debug for CompletionQueue<W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CompletionQueue")
            .field("outstanding", &self.outstanding())
            .field("parked", &self.ready.len())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}
