//! Which registers a lane still reads, operation by operation, and how few there can be.

use super::operation::Op;

/// A set of registers.
type Set = Vec<u64>;

/// The registers that are read after each operation is come to, in ascending order.
#[derive(Clone, Debug)]
pub struct Live {
    registers: Vec<u16>,
    /// For each operation where its registers begin, then the end.
    first: Vec<u32>,
}

impl Live {
    /// The registers that a lane reads that comes to operation `at` next.
    pub fn at(&self, at: u32) -> &[u16] {
        &self.registers[self.first[at as usize] as usize..self.first[at as usize + 1] as usize]
    }
}

/// Renames the registers of a program so that those that are never needed at once share one. Gives how many are left,
/// which are live where, and the new name of each.
pub fn allocate(code: &mut [Op], registers: u32) -> (u32, Live, Vec<u32>) {
    let sets = liveness(code, registers);
    let spans = spans(code, &sets, registers);
    let mut order: Vec<u32> = (0..registers).filter(|&register| spans[register as usize].is_some()).collect();
    order.sort_by_key(|&register| spans[register as usize]);
    let mut names = vec![u32::MAX; registers as usize];
    // For each new register the last operation that needs what is in it.
    let mut busy: Vec<usize> = Vec::new();
    for register in order {
        let Some((begin, end)) = spans[register as usize] else { continue };
        let free = busy.iter().position(|&until| until < begin);
        let name = free.unwrap_or(busy.len());
        if name == busy.len() {
            busy.push(end);
        }
        busy[name] = end;
        names[register as usize] = name as u32;
    }
    for op in code.iter_mut() {
        let (defined, used) = op.registers();
        defined.into_iter().for_each(|register| *register = names[*register as usize]);
        for source in used {
            if source.as_constant().is_none() {
                source.0 = names[source.0 as usize];
            }
        }
    }
    let mut live = Live { registers: Vec::new(), first: vec![0] };
    for set in &sets {
        let mut here: Vec<u16> = members(set).map(|register| names[register as usize] as u16).collect();
        here.sort_unstable();
        live.registers.extend(here);
        live.first.push(live.registers.len() as u32);
    }
    (busy.len() as u32, live, names)
}

/// The registers that are live before each operation.
fn liveness(code: &mut [Op], registers: u32) -> Vec<Set> {
    let words = registers.div_ceil(64) as usize;
    let mut sets = vec![vec![0u64; words]; code.len()];
    let effects: Vec<(Vec<u32>, Vec<u32>)> = code
        .iter_mut()
        .map(|op| {
            let (defined, used) = op.registers();
            let used = used.into_iter().filter(|source| source.as_constant().is_none());
            (defined.into_iter().map(|register| *register).collect(), used.map(|source| source.0).collect())
        })
        .collect();
    let mut changed = true;
    // Ends: sets only grow.
    while changed {
        changed = false;
        for at in (0..code.len()).rev() {
            let mut set = vec![0; words];
            for next in code[at].successors(at).into_iter().flatten() {
                set.iter_mut().zip(&sets[next]).for_each(|(word, next)| *word |= next);
            }
            let (defined, used) = &effects[at];
            defined.iter().for_each(|&register| set[register as usize / 64] &= !(1 << (register % 64)));
            used.iter().for_each(|&register| set[register as usize / 64] |= 1 << (register % 64));
            changed |= set != sets[at];
            sets[at] = set;
        }
    }
    sets
}

/// For each register the first and the last operation that need it.
fn spans(code: &mut [Op], sets: &[Set], registers: u32) -> Vec<Option<(usize, usize)>> {
    let mut spans = vec![None; registers as usize];
    let mut reach = |register: u32, at: usize| {
        let (begin, end) = spans[register as usize].get_or_insert((at, at));
        (*begin, *end) = ((*begin).min(at), (*end).max(at));
    };
    for (at, op) in code.iter_mut().enumerate() {
        members(&sets[at]).for_each(|register| reach(register, at));
        // What is defined and never used needs a place as well.
        op.registers().0.into_iter().for_each(|register| reach(*register, at));
    }
    spans
}

fn members(set: &Set) -> impl Iterator<Item = u32> + '_ {
    (0..)
        .zip(set)
        .flat_map(|(word, &bits)| (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit))
}
