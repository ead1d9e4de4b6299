//! How a ring is split among priority levels.

use crate::protocol::{MAX_LEVELS, MAX_SLOTS, inlet, middle_level};

/// First slot of each level, then the number of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityOffsets {
    words: [u32; MAX_LEVELS as usize + 1],
    levels: u32,
}

/// Why a split can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// No kernel has that many levels.
    #[error("{0} priority levels: use 1 to {MAX_LEVELS}")]
    Levels(u32),
    /// The ring is too long for the scan's words, or empty.
    #[error("a ring of {0} slots: use 1 to {MAX_SLOTS}")]
    Slots(u32),
    /// The first level doesn't begin at slot 0.
    #[error("the first level begins at slot {0}: it must begin at 0")]
    Start(u32),
    /// A level ends before it begins.
    #[error("level {level} begins at slot {begin} and ends at {end}: offsets must not fall")]
    Falling {
        /// The level.
        level: u32,
        /// Its first slot.
        begin: u32,
        /// The next level's first slot.
        end: u32,
    },
    /// The last level doesn't end with the ring.
    #[error("the last level ends at slot {end}, the ring at {slots}: they must be the same")]
    End {
        /// End of the last level.
        end: u32,
        /// Slots of the ring.
        slots: u32,
    },
}

impl PriorityOffsets {
    /// Splits a ring evenly; the remainder goes to NORMAL of the default five levels, else to the middle one.
    ///
    /// # Errors
    /// [`PartitionError::Levels`] and [`PartitionError::Slots`].
    ///
    /// ```
    /// # use abide::scheduler::PriorityOffsets;
    /// let offsets = PriorityOffsets::even(4096, 5)?;
    /// assert_eq!(offsets.as_slice(), [0, 819, 1638, 2458, 3277, 4096]);
    /// # Ok::<(), abide::scheduler::PartitionError>(())
    /// ```
    pub fn even(slots: u32, levels: u32) -> Result<Self, PartitionError> {
        check(slots, levels)?;
        let mut words = [slots; MAX_LEVELS as usize + 1];
        let mut at = 0;
        for (level, word) in words.iter_mut().enumerate().take(levels as usize) {
            *word = at;
            at += slots / levels;
            if level as u32 == middle_level(levels) {
                at += slots % levels;
            }
        }
        Ok(Self { words, levels })
    }

    /// Takes a split as it is: levels + 1 offsets.
    ///
    /// # Errors
    /// Any [`PartitionError`].
    pub fn custom(offsets: &[u32], slots: u32) -> Result<Self, PartitionError> {
        let levels = (offsets.len() as u32).saturating_sub(1);
        check(slots, levels)?;
        if offsets[0] != 0 {
            return Err(PartitionError::Start(offsets[0]));
        }
        for (level, pair) in offsets.windows(2).enumerate() {
            if pair[1] < pair[0] {
                return Err(PartitionError::Falling { level: level as u32, begin: pair[0], end: pair[1] });
            }
        }
        let end = offsets[levels as usize];
        if end != slots {
            return Err(PartitionError::End { end, slots });
        }
        let mut words = [slots; MAX_LEVELS as usize + 1];
        words[..offsets.len()].copy_from_slice(offsets);
        Ok(Self { words, levels })
    }

    /// The offsets: levels + 1 words.
    pub fn as_slice(&self) -> &[u32] {
        &self.words[..=self.levels as usize]
    }

    /// Levels of the split.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.words[self.levels as usize]
    }

    /// Slots of a level, or 0 for a level that there isn't.
    pub fn slots_of(&self, level: u32) -> u32 {
        match self.as_slice().get(level as usize..level as usize + 2) {
            Some(pair) => pair[1] - pair[0],
            None => 0,
        }
    }

    /// Writes the offsets where the kernel reads them: `PRIORITY_OFFSETS` of an image of the inlet's control words.
    ///
    /// # Panics
    /// Where the image is shorter than [`inlet::CONTROL_WORDS`].
    pub fn write_to(&self, control: &mut [u32]) {
        assert!(control.len() >= inlet::CONTROL_WORDS as usize, "a control image has {} words", inlet::CONTROL_WORDS);
        let at = inlet::PRIORITY_OFFSETS as usize;
        control[at..at + self.as_slice().len()].copy_from_slice(self.as_slice());
    }
}

fn check(slots: u32, levels: u32) -> Result<(), PartitionError> {
    if !(1..=MAX_LEVELS).contains(&levels) {
        return Err(PartitionError::Levels(levels));
    }
    if !(1..=MAX_SLOTS).contains(&slots) {
        return Err(PartitionError::Slots(slots));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_split_gives_the_remainder_to_the_middle() {
        assert_eq!(PriorityOffsets::even(23, 5).unwrap().as_slice(), [0, 4, 8, 15, 19, 23]);
        assert_eq!(PriorityOffsets::even(10, 4).unwrap().as_slice(), [0, 2, 4, 8, 10]);
        assert_eq!(PriorityOffsets::even(7, 1).unwrap().as_slice(), [0, 7]);
        assert_eq!(PriorityOffsets::even(3, 8).unwrap().slots_of(4), 3);
    }

    #[test]
    fn custom_split_is_whole_or_refused() {
        assert_eq!(PriorityOffsets::custom(&[0, 0, 9], 9).unwrap().slots_of(0), 0);
        assert_eq!(PriorityOffsets::custom(&[1, 9], 9), Err(PartitionError::Start(1)));
        let falling = PartitionError::Falling { level: 1, begin: 5, end: 4 };
        assert_eq!(PriorityOffsets::custom(&[0, 5, 4, 9], 9), Err(falling));
        assert_eq!(PriorityOffsets::custom(&[0, 8], 9), Err(PartitionError::End { end: 8, slots: 9 }));
        assert_eq!(PriorityOffsets::custom(&[], 9), Err(PartitionError::Levels(0)));
        assert_eq!(PriorityOffsets::even(9, 9), Err(PartitionError::Levels(9)));
        assert_eq!(PriorityOffsets::even(0, 5), Err(PartitionError::Slots(0)));
    }

    #[test]
    fn offsets_land_in_the_control_image() {
        let mut control = [7; inlet::CONTROL_WORDS as usize];
        PriorityOffsets::even(4096, 5).unwrap().write_to(&mut control);
        assert_eq!(control[inlet::PRIORITY_OFFSETS as usize + 5], 4096);
        assert_eq!(control[inlet::STOP as usize], 7);
    }
}
