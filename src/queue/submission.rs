//! The submission half: reserves slots, writes tasks into them and publishes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::doorbell::Doorbell;
use super::error::{BatchError, PushError, TaskError};
use super::in_flight::InFlight;
use super::link::LinkError;
use super::ring::{Level, Place};
use super::shared::Shared;
use super::task::{EXTENSION_LINES, Task, extension_line};
use super::tenants::{Refusal, Tenants};
use super::ticket::{Ticket, Tickets};
use super::words::{Memory, Words};
use crate::protocol::{LINE, MAX_LEVELS, inlet, slot};

/// Pushes tasks; clone it to push from several threads.
///
/// A pushed task may be seen by the kernel at once; [`publish`](Self::publish) makes sure that it is. Dropping a handle
/// publishes what it pushed.
pub struct SubmissionQueue<W: Words = Memory> {
    shared: Arc<Shared<W>>,
    unpublished: Unpublished,
}

impl<W: Words> SubmissionQueue<W> {
    pub(super) fn new(shared: Arc<Shared<W>>) -> Self {
        shared.add_handle();
        Self { shared, unpublished: Unpublished::default() }
    }

    /// Pushes a task and returns the ticket that its completion will carry.
    ///
    /// # Errors
    /// [`PushError::Full`] gives the task back when its level has no free slot or its window is used up, and
    /// [`PushError::NoCredit`] when its tenant has as many tasks in flight as it may;
    /// [`PushError::Invalid`] says why the task can never be pushed; [`PushError::Lost`] that it would never run.
    #[inline]
    pub fn push<'a>(&mut self, task: Task<'a>) -> Result<Ticket, PushError<'a>> {
        let level = self.admit(&task)?;
        if let Some(error) = self.shared.lost() {
            return Err(PushError::Lost(error));
        }
        if task.tenant != 0 {
            match self.shared.tenants.enter(task.tenant) {
                Ok(()) => {}
                Err(Refusal::NoCredit) => return Err(PushError::NoCredit(task)),
                Err(Refusal::Unknown) => return Err(TaskError::Tenant { tenant: task.tenant }.into()),
            }
        }
        let Some(position) = level.reserve(1, self.shared.is_alone(), &self.shared.outlet) else {
            self.give_back(&[task]);
            return Err(PushError::Full(task));
        };
        self.write(level, position, level.ring.place(position), &task);
        self.note(task.level, position, 1);
        Ok(Ticket::new(task.level, position))
    }

    /// Pushes all of the tasks or none, and returns their tickets in order; all must be of one level.
    ///
    /// # Errors
    /// [`BatchError::Full`] when there is no room now and [`BatchError::TooLong`] when there never is; the others say
    /// which task can never be pushed and why, or that none would run.
    pub fn push_batch(&mut self, tasks: &[Task<'_>]) -> Result<Tickets, BatchError> {
        let Some(first) = tasks.first() else {
            return Ok(Tickets { level: 0, positions: 0..0 });
        };
        let level = self.admit(first).map_err(|error| BatchError::Invalid { index: 0, error })?;
        for (index, task) in tasks.iter().enumerate().skip(1) {
            self.admit(task).map_err(|error| BatchError::Invalid { index, error })?;
            if task.level != first.level {
                return Err(BatchError::MixedLevels { first: first.level, index, level: task.level });
            }
        }
        if tasks.len() > level.capacity() as usize {
            let limit = level.capacity();
            return Err(BatchError::TooLong { level: first.level, len: tasks.len(), limit });
        }
        if let Some(error) = self.shared.lost() {
            return Err(BatchError::Lost(error));
        }
        let count = tasks.len() as u64;
        self.take_credits(tasks)?;
        let Some(start) = level.reserve(count, self.shared.is_alone(), &self.shared.outlet) else {
            self.give_back(tasks);
            return Err(BatchError::Full { level: first.level, len: tasks.len() });
        };
        let mut place = level.ring.place(start);
        for (position, task) in (start..).zip(tasks) {
            self.write(level, position, place, task);
            place = level.ring.next(place);
        }
        self.note(first.level, start, count);
        Ok(Tickets { level: first.level, positions: start..start + count })
    }

    /// Makes everything that was pushed through this handle visible to the kernel, and has it launched where it has
    /// left.
    ///
    /// # Errors
    /// Why the tasks can't be run now. They stay pushed: [`CompletionQueue::unfinished`](super::CompletionQueue::unfinished)
    /// lists them.
    pub fn publish(&mut self) -> Result<(), LinkError> {
        if !self.unpublished.is_empty() {
            self.announce();
        }
        // A kernel that leaves just now is missed here, and noticed by the next publish, poll or wait.
        if self.shared.kernel_has_left() && self.shared.pending() > 0 {
            self.shared.turn(Duration::ZERO)?;
        }
        Ok(())
    }

    /// The tenants that tasks can be pushed for.
    pub fn tenants(&self) -> Tenants<W> {
        Tenants::new(self.shared.clone())
    }

    /// A view of the tasks in flight that other threads can keep.
    pub fn in_flight_view(&self) -> InFlight<W> {
        InFlight::new(self.shared.clone())
    }

    /// Tasks that were pushed and are not finished: by any handle, of all levels.
    pub fn outstanding(&self) -> u64 {
        self.shared.outstanding()
    }

    /// Tasks of a level that are not finished; 0 for a level that does not exist.
    pub fn in_flight(&self, level: u32) -> u64 {
        self.shared.levels.get(level as usize).map_or(0, Level::in_flight)
    }

    /// Counts all of the tasks in their tenants' flight, or none.
    fn take_credits(&self, tasks: &[Task<'_>]) -> Result<(), BatchError> {
        for (index, task) in tasks.iter().enumerate().filter(|(_, task)| task.tenant != 0) {
            let tenant = task.tenant;
            if let Err(refusal) = self.shared.tenants.enter(tenant) {
                self.give_back(&tasks[..index]);
                return Err(match refusal {
                    Refusal::NoCredit => BatchError::NoCredit { tenant },
                    Refusal::Unknown => BatchError::Invalid { index, error: TaskError::Tenant { tenant } },
                });
            }
        }
        Ok(())
    }

    /// Gives the credits of tasks back that were not pushed after all.
    fn give_back(&self, tasks: &[Task<'_>]) {
        tasks.iter().filter(|task| task.tenant != 0).for_each(|task| self.shared.tenants.leave(task.tenant));
    }

    /// Remembers positions that were written and not published.
    #[inline]
    fn note(&mut self, level: u32, start: u64, count: u64) {
        if !self.unpublished.add(level, start, count) {
            self.announce();
            self.unpublished.add(level, start, count);
        }
    }

    /// Has what was written leave for the device, and rings the doorbells of levels that have a batch.
    fn announce(&mut self) {
        let (shared, alone) = (&self.shared, self.shared.is_alone());
        if !alone {
            // What is marked has left: a thread may be suspended between the two.
            shared.inlet.flush();
            for span in self.unpublished.spans() {
                let level = &shared.levels[span.level as usize];
                level.doorbell.mark(&level.ring, span.start, span.end);
            }
            Doorbell::settle();
        }
        let mut rang = false;
        for span in self.unpublished.spans() {
            let level = &shared.levels[span.level as usize];
            let tail = level.tail();
            if alone {
                level.doorbell.publish_all(tail);
                rang |= shared.ring_doorbell(span.level, tail, true);
            } else {
                let published = level.doorbell.advance(&level.ring, tail);
                rang |= shared.ring_doorbell(span.level, published, false);
            }
        }
        // Slots need not lie before their doorbell: the kernel believes their tags.
        if alone || rang {
            shared.inlet.flush();
        }
        self.unpublished.clear();
    }

    /// Checks a task and finds its level.
    #[inline]
    fn admit(&self, task: &Task<'_>) -> Result<&Level, TaskError> {
        task.check(self.shared.levels.len() as u32, self.shared.tables)?;
        let level = &self.shared.levels[task.level as usize];
        if level.capacity() == 0 {
            return Err(TaskError::NoSlots { level: task.level });
        }
        Ok(level)
    }

    /// Writes a task into the slot at `place`, which was reserved for it.
    #[inline]
    fn write(&self, level: &Level, position: u64, place: Place, task: &Task<'_>) {
        // Before the slot's generation: whoever sees the completion finds the task.
        level.table.insert(position, task.user_data);
        let generation = place.generation();
        if !task.extension().is_empty() {
            self.write_extension(place, task.extension(), generation);
        }
        // Its tags, stored last, pair with the kernel's acquiring load of the generation.
        self.shared.inlet.store_slot(inlet::slot_at(place.slot), &task.slot_words(generation));
    }

    /// Writes all lines of the slot's extension, since the kernel checks the tags of each.
    #[cold]
    fn write_extension(&self, place: Place, payload: &[u32], generation: u32) {
        let extensions = inlet::extensions_at(self.shared.slots, self.shared.tables);
        let at = extensions + place.slot * slot::EXTENSION_WORDS;
        for line in 0..EXTENSION_LINES {
            self.shared.inlet.store_slot(at + line * LINE, &extension_line(payload, generation, line));
        }
    }
}

/// Spans of positions that a handle keeps: pushes to all levels by turns need one for each.
const SPANS: usize = 8;
const _: () = assert!(SPANS >= MAX_LEVELS as usize);

/// Positions in a row of one level.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    level: u32,
    start: u64,
    end: u64,
}

/// What a handle has written and not published.
#[derive(Debug, Default)]
struct Unpublished {
    spans: [Span; SPANS],
    len: usize,
}

impl Unpublished {
    #[inline]
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn spans(&self) -> &[Span] {
        &self.spans[..self.len]
    }

    fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds positions; false where there is no room for another span.
    #[inline]
    fn add(&mut self, level: u32, start: u64, count: u64) -> bool {
        let end = start + count;
        if let Some(span) = self.spans[..self.len].iter_mut().find(|span| span.level == level && span.end == start) {
            span.end = end;
            return true;
        }
        let Some(free) = self.spans.get_mut(self.len) else { return false };
        *free = Span { level, start, end };
        self.len += 1;
        true
    }
}

impl<W: Words> Clone for SubmissionQueue<W> {
    fn clone(&self) -> Self {
        // What the other handle has not published is its own business.
        Self::new(self.shared.clone())
    }
}

impl<W: Words> Drop for SubmissionQueue<W> {
    fn drop(&mut self) {
        if !self.unpublished.is_empty()
            && let Err(error) = self.publish()
        {
            log::warn!("tasks that were pushed before a submission queue was dropped may not run: {error}");
        }
        self.shared.drop_handle();
    }
}

impl<W: Words> fmt::Debug for SubmissionQueue<W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SubmissionQueue")
            .field("outstanding", &self.outstanding())
            .field("unpublished", &!self.unpublished.is_empty())
            .finish_non_exhaustive()
    }
}
