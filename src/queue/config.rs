//! The shape of a pair of queues, and the words that memory must hold before the first launch.

use super::error::ConfigError;
use super::ring::Ring;
use super::ticket::POSITION_LIMIT;
use crate::protocol::{MAX_LEVELS, MAX_SLOTS, completion, inlet, outlet, slot, state, tenant};

/// The most completion entries.
const MAX_ENTRIES: u32 = 1 << 26;

/// The most laps that a ring may have behind it at the start; half of all positions is left for the run.
const MAX_FIRST_LAP_POSITION: u64 = POSITION_LIMIT / 2;

/// The shape of a pair of queues.
///
/// ```
/// use abide::queue::QueueConfig;
///
/// let config = QueueConfig::even(&[0, 16, 32, 64], 64, 0);
/// assert_eq!(config.windows, [21, 21, 21]);
/// config.check()?;
/// # Ok::<(), abide::queue::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// First slot of each level, then the number of slots: levels + 1 values from 0 that don't fall.
    pub offsets: Vec<u32>,
    /// For each level the most tasks that may be in flight: pushed, and not yet delivered.
    pub windows: Vec<u32>,
    /// Entries of the completion queue: a power of two, at least the sum of the windows.
    pub entries: u32,
    /// Binding tables of the inlet.
    pub tables: u32,
    /// Tenants that can be registered, tenant 0 included: 1 to [`MAX_TENANTS`](tenant::MAX_TENANTS).
    pub tenants: u32,
    /// Tasks that each tenant but 0 may have in flight: a power of two.
    pub credits: u32,
    /// Laps that every level's ring has behind it at the start; 0 but for tests of the wrap.
    pub first_lap: u64,
    /// Ticket of the first completion; 0 but for tests of the wrap.
    pub first_ticket: u32,
}

impl QueueConfig {
    /// A shape that shares the completion entries out evenly among the levels' windows.
    pub fn even(offsets: &[u32], entries: u32, tables: u32) -> Self {
        let levels = offsets.len().saturating_sub(1);
        let window = entries.checked_div(levels as u32).unwrap_or(0);
        Self {
            offsets: offsets.to_vec(),
            windows: vec![window; levels],
            entries,
            tables,
            tenants: 1,
            credits: 1,
            first_lap: 0,
            first_ticket: 0,
        }
    }

    /// Number of levels.
    pub fn levels(&self) -> u32 {
        self.windows.len() as u32
    }

    /// Number of slots, of all levels.
    pub fn slots(&self) -> u32 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// Checks that the parts fit each other.
    ///
    /// # Errors
    /// The first part that doesn't, with its value and the limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        let levels = self.offsets.len().saturating_sub(1);
        if levels == 0 || levels > MAX_LEVELS as usize {
            return Err(ConfigError::Levels { levels, limit: MAX_LEVELS });
        }
        if self.windows.len() != levels {
            return Err(ConfigError::Windows { windows: self.windows.len(), levels });
        }
        if self.offsets[0] != 0 {
            return Err(ConfigError::Start { first: self.offsets[0] });
        }
        for (level, ends) in self.offsets.windows(2).enumerate() {
            if ends[1] < ends[0] {
                return Err(ConfigError::Falling { level, start: ends[0], end: ends[1] });
            }
            if ends[1] > ends[0] && self.windows[level] == 0 {
                return Err(ConfigError::Window { level });
            }
        }
        if self.slots() == 0 || self.slots() > MAX_SLOTS {
            return Err(ConfigError::Slots { slots: self.slots(), limit: MAX_SLOTS });
        }
        if !self.entries.is_power_of_two() || self.entries > MAX_ENTRIES {
            return Err(ConfigError::Entries { entries: self.entries, limit: MAX_ENTRIES });
        }
        let sum = self.windows.iter().map(|&window| u64::from(window)).sum();
        if sum > u64::from(self.entries) {
            return Err(ConfigError::Overrun { sum, entries: self.entries });
        }
        let fits = |credits: u32| u64::from(self.tenants) * u64::from(credits) <= u64::from(tenant::MAX_ENTRIES);
        if !(1..=tenant::MAX_TENANTS).contains(&self.tenants) {
            return Err(ConfigError::Tenants { tenants: self.tenants, limit: tenant::MAX_TENANTS });
        }
        if !self.credits.is_power_of_two() || !fits(self.credits) {
            let limit = 1 << (tenant::MAX_ENTRIES / self.tenants).ilog2();
            return Err(ConfigError::Credits { credits: self.credits, tenants: self.tenants, limit });
        }
        self.check_words()?;
        let widest = self.offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(1);
        let limit = MAX_FIRST_LAP_POSITION / u64::from(widest.max(1));
        if self.first_lap >= limit {
            return Err(ConfigError::FirstLap { lap: self.first_lap, limit });
        }
        Ok(())
    }

    /// Checks that 32 bits can count the words; the sums here bound those of `protocol`, which would wrap.
    fn check_words(&self) -> Result<(), ConfigError> {
        let (slots, tables) = (u64::from(self.slots()), u64::from(self.tables));
        let inlet = u64::from(inlet::CONTROL_WORDS)
            + slots * u64::from(slot::WORDS + slot::EXTENSION_WORDS)
            + tables * u64::from(crate::protocol::binding::TABLE_WORDS);
        let outlet = u64::from(outlet::words(16, 1)) + (slots + u64::from(self.entries)) * 5;
        for (buffer, words) in [("inlet", inlet), ("outlet", outlet)] {
            if words > u64::from(u32::MAX) {
                return Err(ConfigError::Words { buffer, words });
            }
        }
        Ok(())
    }

    pub(super) fn rings(&self) -> impl Iterator<Item = Ring> + '_ {
        self.offsets.windows(2).map(|ends| Ring::new(ends[0], ends[1] - ends[0]))
    }

    /// Generation of a slot in the lap before the first.
    fn generation(&self) -> u32 {
        self.first_lap as u32
    }

    /// Words of the inlet, {at, value}, that the runtime stores into memory of zeros before the first launch.
    ///
    /// None where the rings start at lap 0. The partition offsets are not among them.
    pub fn initial_inlet(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let slots = if self.generation() == 0 { 0 } else { self.slots() };
        let lines = (0..slots).flat_map(|index| slot::TAGS.map(|tag| inlet::slot_at(index) + tag));
        lines.map(|at| (at, self.generation()))
    }

    /// Words of the outlet, {at, value}, that the runtime stores into memory of zeros before the first launch.
    ///
    /// None where rings and completions start at 0.
    pub fn initial_outlet(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let slots = if self.generation() == 0 { 0 } else { self.slots() };
        let entries = if self.first_ticket == 0 { 0 } else { self.entries };
        let of_slots = (0..slots).flat_map(|index| {
            let direct = outlet::direct_at(self.slots(), index) + completion::PHASE;
            [outlet::taken_at(index), direct].map(|at| (at, self.generation()))
        });
        // The phase that each entry had when the queue went round before.
        let of_entries = (0..entries).map(|age| {
            let ticket = self.first_ticket.wrapping_sub(1 + age);
            let entry = outlet::entry_at(self.slots(), self.entries, ticket);
            (entry + completion::PHASE, ticket.wrapping_add(1))
        });
        of_slots.chain(of_entries)
    }

    /// Doorbells, {at, value}, that the runtime stores into memory of zeros before the first launch.
    pub fn initial_doorbells(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let bells = (inlet::DOORBELLS..).zip(self.starts()).map(|(at, (start, _))| (at, start as u32));
        bells.filter(|&(_, word)| word != 0)
    }

    /// Where the fast policy's intake starts, {at, value}: words of the state that the runtime stores into memory of zeros
    /// before the first launch.
    pub fn initial_intake(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let levels = (0..).zip(self.starts()).filter(|(_, (_, slots))| *slots > 0);
        let words = levels.flat_map(|(level, (start, slots))| {
            // The position at which the half of the positions begins that the first one lies in.
            let half = start & !((1 << 31) - 1);
            let base = state::BASES + level * state::BASE_WORDS + (half as u32 >> 31) * 2;
            [
                (state::INTAKE + level, start as u32),
                (state::TICKETS + level * state::APART, start as u32),
                (state::INTAKE_LAP + level, self.generation()),
                (base, (half % u64::from(slots)) as u32),
                (base + 1, (half / u64::from(slots)) as u32),
            ]
        });
        words.filter(|&(_, word)| word != 0)
    }

    /// For each level its first position, and its slots.
    pub fn starts(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let slots = self.offsets.windows(2).map(|ends| ends[1] - ends[0]);
        slots.map(|slots| (self.first_lap * u64::from(slots), slots))
    }

    /// Words of the state, {at, value}, that the runtime stores into memory of zeros before the first launch.
    pub fn initial_state(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let empty = slot::state::pack(self.generation(), slot::state::EMPTY);
        let slots = if empty == 0 { 0 } else { self.slots() };
        let tickets = (self.first_ticket != 0).then_some((state::COMPLETION_TICKET, self.first_ticket));
        tickets.into_iter().chain((0..slots).map(move |index| (state::slot_state_at(index), empty)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> QueueConfig {
        QueueConfig::even(&[0, 4, 4, 12], 16, 2)
    }

    #[test]
    fn every_part_that_does_not_fit_is_named() {
        assert_eq!(config().check(), Ok(()));
        let broken = |change: fn(&mut QueueConfig)| {
            let mut config = config();
            change(&mut config);
            config.check().expect_err("the change breaks the shape")
        };
        assert_eq!(broken(|c| c.offsets = vec![]), ConfigError::Levels { levels: 0, limit: 8 });
        assert_eq!(broken(|c| c.offsets = vec![0; 10]), ConfigError::Levels { levels: 9, limit: 8 });
        assert_eq!(broken(|c| c.windows = vec![1]), ConfigError::Windows { windows: 1, levels: 3 });
        assert_eq!(broken(|c| c.offsets[0] = 1), ConfigError::Start { first: 1 });
        assert_eq!(broken(|c| c.offsets[2] = 3), ConfigError::Falling { level: 1, start: 4, end: 3 });
        assert_eq!(broken(|c| c.windows[2] = 0), ConfigError::Window { level: 2 });
        assert_eq!(broken(|c| c.offsets = vec![0; 4]), ConfigError::Slots { slots: 0, limit: MAX_SLOTS });
        assert_eq!(
            broken(|c| c.offsets[3] = MAX_SLOTS + 1),
            ConfigError::Slots { slots: MAX_SLOTS + 1, limit: MAX_SLOTS }
        );
        assert_eq!(broken(|c| c.entries = 24), ConfigError::Entries { entries: 24, limit: MAX_ENTRIES });
        assert_eq!(broken(|c| c.windows[0] = 9), ConfigError::Overrun { sum: 19, entries: 16 });
        assert_eq!(broken(|c| c.tenants = 0), ConfigError::Tenants { tenants: 0, limit: 256 });
        assert_eq!(broken(|c| c.tenants = 257), ConfigError::Tenants { tenants: 257, limit: 256 });
        assert_eq!(broken(|c| c.credits = 0), ConfigError::Credits { credits: 0, tenants: 1, limit: 1 << 20 });
        let wide = broken(|c| (c.tenants, c.credits) = (3, 1 << 19));
        assert_eq!(wide, ConfigError::Credits { credits: 1 << 19, tenants: 3, limit: 1 << 18 });
        assert!(matches!(broken(|c| c.tables = u32::MAX), ConfigError::Words { buffer: "inlet", .. }));
        assert!(matches!(broken(|c| c.first_lap = 1 << 58), ConfigError::FirstLap { .. }));
    }

    #[test]
    fn words_need_no_store_at_the_first_start_and_all_of_them_later() {
        let mut config = config();
        assert_eq!(
            config.initial_inlet().count() + config.initial_outlet().count() + config.initial_state().count(),
            0
        );
        config.first_lap = u64::from(u32::MAX);
        config.first_ticket = u32::MAX;
        assert_eq!(config.initial_inlet().count(), 12 * 4);
        assert_eq!(config.initial_outlet().count(), 12 * 2 + 16);
        assert_eq!(config.initial_state().count(), 1 + 12);
        assert!(config.initial_outlet().all(|(at, _)| at < outlet::words(12, 16)));
    }
}
