//! What one workgroup is doing, and how it goes on.

use super::evaluate::{binary, unary};
use super::memory::after;
use super::operation::{ABSENT, Across, At, Op, Source};
use super::{InterpretError, Kind, Memory, Program, Request, Target};
use crate::ir::{Input, Scope};

/// The most lanes of a subgroup.
const MAX_SUBGROUP: u32 = 64;

/// What all workgroups of a launch share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Lanes of a workgroup.
    pub width: u32,
    /// Lanes of a subgroup.
    pub subgroup: u32,
    /// Workgroups.
    pub groups: u32,
    /// Launch parameters.
    pub params: Vec<u32>,
}

/// Why a subgroup doesn't go on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// These lanes, by their index in the subgroup, wait for an answer to what they ask of memory.
    Access(u64),
    /// It waits at a control barrier for the workgroup's other subgroups.
    Waiting,
    /// It begins another turn of a loop that no other is around. Only where it was asked to stop there.
    Turn,
    /// It has ended.
    Ended,
}

/// One workgroup between two operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Workgroup {
    index: u32,
    subgroups: Vec<Subgroup>,
    shared: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subgroup {
    /// For each lane the operation that it comes to next.
    next: Vec<u32>,
    /// Register by register, the lanes' words.
    registers: Vec<u32>,
}

/// A program on its way: what the steps of a workgroup need besides its state.
#[derive(Clone, Copy)]
struct Context<'p> {
    program: &'p Program,
    launch: &'p Launch,
    index: u32,
    /// Index of the subgroup.
    subgroup: usize,
}

impl Workgroup {
    /// Workgroup `index` of a launch, before its first operation. Workgroup memory and registers are 0.
    ///
    /// # Errors
    /// [`InterpretError::Shape`] and [`InterpretError::Params`] where the launch doesn't fit.
    pub fn new(program: &Program, launch: &Launch, index: u32) -> Result<Self, InterpretError> {
        let Launch { width, subgroup, ref params, .. } = *launch;
        if width == 0 || subgroup == 0 || subgroup > MAX_SUBGROUP {
            return Err(InterpretError::Shape { width, subgroup });
        }
        if params.len() != program.params as usize {
            return Err(InterpretError::Params { given: params.len(), declared: program.params });
        }
        let subgroups = (0..width.div_ceil(subgroup)).map(|number| {
            let lanes = subgroup.min(width - number * subgroup) as usize;
            Subgroup { next: vec![0; lanes], registers: vec![0; lanes * program.registers as usize] }
        });
        let words: u32 = program.arrays.iter().map(|array| array.1).sum();
        Ok(Self { index, subgroups: subgroups.collect(), shared: vec![0; words as usize] })
    }

    /// Number of subgroups.
    pub fn subgroups(&self) -> usize {
        self.subgroups.len()
    }

    /// Whether all lanes have ended.
    pub fn has_ended(&self, program: &Program) -> bool {
        let end = program.code.len() as u32 - 1;
        self.subgroups.iter().all(|subgroup| subgroup.next.iter().all(|&next| next == end))
    }

    /// Runs a subgroup until it pauses; `turns` asks to stop where an outermost loop begins another turn. A subgroup that
    /// waits goes on when all others wait at the same barrier.
    ///
    /// # Errors
    /// What the kernel did wrong, or [`InterpretError::Budget`] after `budget` operations.
    pub fn advance(
        &mut self,
        program: &Program,
        launch: &Launch,
        subgroup: usize,
        turns: bool,
        budget: u64,
    ) -> Result<Pause, InterpretError> {
        let context = Context { program, launch, index: self.index, subgroup };
        let mut left = budget;
        // Ends: each round takes from the budget, or pauses.
        loop {
            match self.subgroups[subgroup].run(context, &mut self.shared, &mut left, turns)? {
                None if left == 0 => return Err(InterpretError::Budget(budget)),
                None => {}
                Some(Pause::Waiting) if self.meet(context)? => {}
                Some(pause) => return Ok(pause),
            }
        }
    }

    /// Whether all subgroups have come to the barrier that one of them waits at; if so they are let go.
    fn meet(&mut self, context: Context<'_>) -> Result<bool, InterpretError> {
        let at = self.subgroups[context.subgroup].next[0];
        let end = context.program.code.len() as u32 - 1;
        for (number, subgroup) in self.subgroups.iter().enumerate() {
            if subgroup.next[0] == end {
                return Err(InterpretError::DivergentBarrier { subgroup: number, here: 0 });
            }
        }
        if self.subgroups.iter().any(|subgroup| subgroup.next[0] != at) {
            return Ok(false);
        }
        self.subgroups.iter_mut().for_each(|subgroup| subgroup.next.fill(at + 1));
        Ok(true)
    }

    /// What a lane asks of memory; the subgroup has paused for an access of the lane.
    pub fn pending(&self, program: &Program, launch: &Launch, subgroup: usize, lane: usize) -> Request {
        let group = &self.subgroups[subgroup];
        let op = &program.code[group.next[lane] as usize];
        let word = |source: Source| group.word(program, source, lane);
        let (target, kind) = match *op {
            Op::Load(to, at) => (at, Kind::Load(if to[3] == ABSENT { 1 } else { 4 })),
            Op::Store(at, value) => (at, Kind::Store(word(value))),
            Op::Store4(at, values) => (at, Kind::Store4(values.map(word))),
            Op::Atomic { op, at, value, expected, scope, order, .. } => {
                (at, Kind::Atomic { op, value: word(value), expected: word(expected), scope, order })
            }
            Op::Fence(scope, order, classes) => (NOWHERE, Kind::Fence(scope, order, classes)),
            Op::Barrier(scope, _) => (NOWHERE, Kind::Barrier(scope)),
            _ => (NOWHERE, Kind::Load(0)),
        };
        let target = match target {
            At::Buffer(buffer, index) => Target::Buffer { buffer, index: word(index) },
            At::Address([low, high, index]) => {
                let base = u64::from(word(low)) | u64::from(word(high)) << 32;
                Target::Address(base.wrapping_add(u64::from(word(index)) * 4))
            }
            At::Shared(..) => Target::None,
        };
        Request { lane: subgroup as u32 * launch.subgroup + lane as u32, target, kind }
    }

    /// Answers what a lane asked of memory: the words that its access gives.
    pub fn answer(&mut self, program: &Program, subgroup: usize, lane: usize, words: [u32; 4]) {
        let group = &mut self.subgroups[subgroup];
        let at = group.next[lane];
        match program.code[at as usize] {
            Op::Load(to, _) => group.set_all(to, lane, words),
            Op::Atomic { result, .. } if result != ABSENT => group.set(result, lane, words[0]),
            // A barrier is the subgroup's: one answer is for all.
            Op::Barrier(..) => return group.next.fill(at + 1),
            _ => {}
        }
        group.next[lane] = at + 1;
    }

    /// Runs the workgroup to its end, subgroup by subgroup.
    ///
    /// # Errors
    /// What the kernel did wrong, what the memory refused, or [`InterpretError::Budget`].
    pub fn run(
        &mut self,
        program: &Program,
        launch: &Launch,
        memory: &mut impl Memory,
        budget: u64,
    ) -> Result<(), InterpretError> {
        let mut left = budget;
        // Ends: each round takes from the budget.
        while !self.has_ended(program) {
            for subgroup in 0..self.subgroups.len() {
                loop {
                    left = left.checked_sub(1).ok_or(InterpretError::Budget(budget))?;
                    match self.advance(program, launch, subgroup, false, left)? {
                        Pause::Access(lanes) => self.answer_all(program, launch, (subgroup, lanes), memory)?,
                        Pause::Waiting | Pause::Ended | Pause::Turn => break,
                    }
                }
            }
        }
        Ok(())
    }

    fn answer_all(
        &mut self,
        program: &Program,
        launch: &Launch,
        (subgroup, lanes): (usize, u64),
        memory: &mut impl Memory,
    ) -> Result<(), InterpretError> {
        let mut rest = lanes;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let request = self.pending(program, launch, subgroup, lane);
            let words = memory.access(&request)?;
            self.answer(program, subgroup, lane, words);
            if matches!(request.kind, Kind::Barrier(_)) {
                break;
            }
        }
        Ok(())
    }

    /// Appends what the workgroup's further way depends on: where each lane is and what it still reads, and workgroup memory.
    /// Workgroups of one program and launch that pack the same words behave the same.
    pub fn pack(&self, program: &Program, words: &mut Vec<u32>) {
        words.push(self.index);
        for group in &self.subgroups {
            for (lane, &next) in group.next.iter().enumerate() {
                words.push(next);
                words.extend(program.live.at(next).iter().map(|&register| group.get(u32::from(register), lane)));
            }
        }
        words.extend(&self.shared);
    }

    /// The workgroup that packed these words, which it takes from the front.
    ///
    /// # Panics
    /// Where the words are another program's or launch's.
    pub fn unpack(&mut self, program: &Program, words: &mut impl Iterator<Item = u32>) {
        let mut word = || words.next().expect("as many words as were packed");
        self.index = word();
        for group in &mut self.subgroups {
            group.registers.fill(0);
            for lane in 0..group.next.len() {
                group.next[lane] = word();
                for &register in program.live.at(group.next[lane]) {
                    group.set(u32::from(register), lane, word());
                }
            }
        }
        self.shared.iter_mut().for_each(|shared| *shared = word());
    }

    /// The variable of this name in a lane; none where there is none, or where the lane doesn't read it any more.
    pub fn variable(&mut self, program: &Program, name: &str, lane: usize) -> Option<&mut u32> {
        let register = program.register_of(name)?;
        let group = &mut self.subgroups[0];
        let alive = program.live.at(group.next[lane]).contains(&(register as u16));
        let lanes = group.next.len();
        alive.then(|| &mut group.registers[register as usize * lanes + lane])
    }

    /// Words of workgroup memory, array after array.
    pub fn shared(&mut self) -> &mut [u32] {
        &mut self.shared
    }
}

/// The place of an operation that has none.
const NOWHERE: At = At::Shared(0, Source(0));

impl Subgroup {
    fn get(&self, register: u32, lane: usize) -> u32 {
        self.registers[register as usize * self.next.len() + lane]
    }

    fn set(&mut self, register: u32, lane: usize, word: u32) {
        let lanes = self.next.len();
        self.registers[register as usize * lanes + lane] = word;
    }

    fn set_all(&mut self, registers: [u32; 4], lane: usize, words: [u32; 4]) {
        for (register, word) in registers.into_iter().zip(words).filter(|(register, _)| *register != ABSENT) {
            self.set(register, lane, word);
        }
    }

    #[inline]
    fn word(&self, program: &Program, source: Source, lane: usize) -> u32 {
        match source.as_constant() {
            Some(number) => program.constants[number as usize],
            None => self.get(source.0, lane),
        }
    }

    /// Runs until something is waited for, or until the lanes that go on are others; then it gives none.
    fn run(
        &mut self,
        context: Context<'_>,
        shared: &mut [u32],
        left: &mut u64,
        turns: bool,
    ) -> Result<Option<Pause>, InterpretError> {
        let program = context.program;
        let mut at = self.next.iter().copied().min().unwrap_or(0);
        let (mut mask, mut others) = (0u64, u32::MAX);
        for (lane, &next) in self.next.iter().enumerate() {
            if next == at {
                mask |= 1 << lane;
            } else {
                others = others.min(next);
            }
        }
        // Ends: each turn takes from the budget.
        while at < others && *left > 0 {
            *left -= 1;
            let op = &program.code[at as usize];
            let mut go_to = at + 1;
            match *op {
                Op::Jump(to) => go_to = to,
                Op::Turn(to, outermost) => {
                    go_to = to;
                    if outermost && turns {
                        self.place(mask, to);
                        return Ok(Some(Pause::Turn));
                    }
                }
                Op::Branch(condition, to) => {
                    let holds = self.ballot(program, mask, condition);
                    if holds == 0 {
                        go_to = to;
                    } else if holds != mask {
                        self.place(holds, at + 1);
                        self.place(mask & !holds, to);
                        return Ok(None);
                    }
                }
                Op::Barrier(scope, classes) => {
                    self.place(mask, at);
                    if mask.count_ones() as usize != self.next.len() {
                        return Err(InterpretError::DivergentBarrier { subgroup: context.subgroup, here: mask });
                    }
                    if scope == Scope::Workgroup && context.launch.width > context.launch.subgroup {
                        return Ok(Some(Pause::Waiting));
                    }
                    if classes.buffers {
                        return Ok(Some(Pause::Access(1)));
                    }
                }
                Op::End => {
                    self.place(mask, at);
                    return Ok(Some(Pause::Ended));
                }
                _ if is_access(op) => {
                    self.place(mask, at);
                    return Ok(Some(Pause::Access(mask)));
                }
                _ => self.local(context, shared, op, mask)?,
            }
            at = go_to;
        }
        self.place(mask, at);
        Ok(None)
    }

    fn place(&mut self, mask: u64, at: u32) {
        for lane in lanes(mask) {
            self.next[lane] = at;
        }
    }

    fn ballot(&self, program: &Program, mask: u64, condition: Source) -> u64 {
        lanes(mask).filter(|&lane| self.word(program, condition, lane) != 0).fold(0, |bits, lane| bits | 1 << lane)
    }

    /// An operation that nobody else sees.
    fn local(&mut self, context: Context<'_>, shared: &mut [u32], op: &Op, mask: u64) -> Result<(), InterpretError> {
        let program = context.program;
        if let Op::Across(to, across, values, lane) = *op {
            self.across(program, mask, (to, across), (values, lane));
            return Ok(());
        }
        for lane in lanes(mask) {
            let word = |source: Source| self.word(program, source, lane);
            let place = |at: At| match at {
                At::Shared(array, index) => shared_index(context, lane, array, word(index)),
                At::Buffer(..) | At::Address(_) => Ok(0),
            };
            let (to, value) = match *op {
                Op::Input(to, input) => (to, self.input(context, input, lane)),
                Op::Unary(to, op, a, truth) => (to, unary(op, word(a), truth)),
                Op::Binary(to, op, a, b) => (to, binary(op, word(a), word(b))),
                Op::Select(to, [condition, yes, no]) => (to, word(if word(condition) != 0 { yes } else { no })),
                Op::Copy(to, from) => (to, word(from)),
                Op::Load(to, at) => (to[0], shared[place(at)?]),
                Op::Store(at, value) => {
                    shared[place(at)?] = word(value);
                    continue;
                }
                Op::Atomic { result, op, at, value, expected, .. } => {
                    let at = place(at)?;
                    let before = shared[at];
                    shared[at] = after(op, before, word(value), word(expected));
                    if result == ABSENT {
                        continue;
                    }
                    (result, before)
                }
                Op::Handler { array, word, fault } => {
                    if context.subgroup == 0 && lane == 0 {
                        shared[shared_index(context, lane, array, word)?] = fault;
                    }
                    continue;
                }
                // The others don't come here: they change where lanes go on.
                _ => continue,
            };
            self.set(to, lane, value);
        }
        Ok(())
    }

    fn input(&self, context: Context<'_>, input: Input, lane: usize) -> u32 {
        let launch = context.launch;
        match input {
            Input::LocalIndex => context.subgroup as u32 * launch.subgroup + lane as u32,
            Input::WorkgroupSize => launch.width,
            Input::WorkgroupIndex => context.index,
            Input::WorkgroupCount => launch.groups,
            Input::SubgroupLane => lane as u32,
            Input::SubgroupSize => launch.subgroup,
            Input::SubgroupCount => launch.width.div_ceil(launch.subgroup),
            Input::Param(word) => launch.params[word as usize],
        }
    }

    fn across(
        &mut self,
        program: &Program,
        mask: u64,
        (to, across): ([u32; 4], Across),
        (values, from): ([Source; 4], Source),
    ) {
        let first = mask.trailing_zeros() as usize;
        let same = |word: u32| [word, 0, 0, 0];
        let holds = |bits: u64| same(u32::from(bits != 0));
        // All lanes read before any is written.
        let words: [[u32; 4]; MAX_SUBGROUP as usize] = std::array::from_fn(|lane| {
            if mask >> lane & 1 == 0 {
                return [0; 4];
            }
            match across {
                Across::Any => holds(self.ballot(program, mask, values[0])),
                Across::All => same(u32::from(self.ballot(program, mask, values[0]) == mask)),
                Across::Ballot => {
                    let bits = self.ballot(program, mask, values[0]);
                    [bits as u32, (bits >> 32) as u32, 0, 0]
                }
                Across::Shuffle => {
                    // From a lane that isn't there the IR leaves the result undefined.
                    let from = (self.word(program, from, lane) as usize).min(self.next.len() - 1);
                    values.map(|value| self.word(program, value, from))
                }
                Across::BroadcastFirst => values.map(|value| self.word(program, value, first)),
                Across::Add => {
                    let sum = lanes(mask).fold(0u32, |sum, lane| sum.wrapping_add(self.word(program, values[0], lane)));
                    same(sum)
                }
                Across::Elect => same(u32::from(lane == first)),
            }
        });
        for lane in lanes(mask) {
            self.set_all(to, lane, words[lane]);
        }
    }
}

fn lanes(mask: u64) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        let some = rest != 0;
        rest &= rest.wrapping_sub(1);
        some.then_some(lane)
    })
}

/// Whether an operation asks something of memory that others see.
fn is_access(op: &Op) -> bool {
    match op {
        Op::Load(_, at) | Op::Store(at, _) | Op::Store4(at, _) | Op::Atomic { at, .. } => !matches!(at, At::Shared(..)),
        Op::Fence(_, _, classes) => classes.buffers,
        _ => false,
    }
}

/// Where a word of an array lies in workgroup memory.
fn shared_index(context: Context<'_>, lane: usize, array: u32, index: u32) -> Result<usize, InterpretError> {
    let program = context.program;
    let (first, words) = program.arrays[array as usize];
    if index < words {
        return Ok((first + index) as usize);
    }
    let lane = context.subgroup as u32 * context.launch.subgroup + lane as u32;
    let place = format!("workgroup array {}", program.array_name(array));
    Err(InterpretError::OutOfBounds { lane, place, index: u64::from(index), words: u64::from(words) })
}
