//! Damaged modules: the linker never panics, and what it accepts it turns into a module.
//!
//! `ABIDE_GARBAGE_CASES` sets the number of cases, for longer runs.

#[expect(dead_code, reason = "shared with other tests: this one runs nothing")]
mod link;
#[path = "common/spirv_val.rs"]
mod spirv_val;

use std::panic::{AssertUnwindSafe, catch_unwind};

use abide::spirv::Lowered;
use abide::spirv::link::{HandlerModule, Limits, link};

use link::kernel::kernel;
use link::shaders;

const CASES: u64 = 14_000;
/// Of the accepted cases, those that spirv-val is asked about: one in this many.
const SAMPLE: u64 = 40;
const HEADER: usize = 5;

/// A small generator: the same cases in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Word ranges of a module's instructions.
fn instructions(words: &[u32]) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = HEADER;
    while at < words.len() && words[at] >> 16 != 0 {
        let end = (at + (words[at] >> 16) as usize).min(words.len());
        ranges.push(at..end);
        at = end;
    }
    ranges
}

/// Damages a module in one way.
fn damage(words: &mut Vec<u32>, random: &mut Random) {
    const LABEL: u32 = 248;
    let ranges = instructions(words);
    let pick = |random: &mut Random| ranges[random.below(ranges.len())].clone();
    // An operand of an instruction, most of which are ids; the first word is the opcode.
    let operand = |random: &mut Random| {
        let range = pick(random);
        range.start + (1 + random.below(range.len().saturating_sub(1))).min(range.len() - 1)
    };
    match random.below(11) {
        0 => words.truncate(random.below(words.len() + 1)),
        1 => {
            let at = random.below(words.len());
            words[at] ^= 1 << random.below(32);
        }
        2 => {
            let at = random.below(words.len());
            words[at] = random.next() as u32;
        }
        3 | 4 => {
            let (at, bound) = (operand(random), words[3] as usize);
            words[at] = random.below(bound + 1) as u32;
        }
        5 => {
            let (to, from) = (operand(random), operand(random));
            words[to] = words[from];
        }
        6 => drop(words.drain(pick(random))),
        7 => {
            let (copy, at) = (words[pick(random)].to_vec(), pick(random).start);
            words.splice(at..at, copy);
        }
        8 => {
            let at = pick(random).start;
            words[at] = (words[at] & 0xffff_0000) | random.below(400) as u32;
        }
        9 => {
            // A whole block, from its label to the next.
            let labels: Vec<_> = ranges.iter().filter(|range| words[range.start] & 0xffff == LABEL).collect();
            if labels.len() > 1 {
                let at = random.below(labels.len() - 1);
                words.drain(labels[at].start..labels[at + 1].start);
            }
        }
        _ => {
            let (a, b) = (pick(random), pick(random));
            if a.len() == b.len() {
                for (a, b) in a.zip(b) {
                    words.swap(a, b);
                }
            }
        }
    }
}

#[test]
fn damaged_modules_are_refused_or_linked_soundly() {
    let cases = std::env::var("ABIDE_GARBAGE_CASES").map_or(CASES, |cases| cases.parse().expect("a number of cases"));
    let kernel = kernel();
    let compiled: Vec<_> = shaders::ALL.iter().filter_map(|shader| shader.words()).collect();
    let limits = Limits { workgroup_bytes: 16 * 1024 };
    let (mut accepted, mut valid) = (0, 0);
    for case in 0..cases {
        let mut random = Random(case);
        let shader = random.below(compiled.len());
        let mut words = compiled[shader].clone();
        for _ in 0..=random.below(2) {
            if !instructions(&words).is_empty() {
                damage(&mut words, &mut random);
            }
        }
        let handler = HandlerModule { words: &words, entry: "main", opcode: 16 };
        let linked = catch_unwind(AssertUnwindSafe(|| link(&kernel, &[handler], &limits)));
        let linked = linked.unwrap_or_else(|_| panic!("case {case}: the linker panics"));
        let linked = match linked {
            Ok(linked) => linked,
            Err(error) => {
                assert!(!error.to_string().is_empty(), "case {case}");
                continue;
            }
        };
        accepted += 1;
        // Reading it again checks its structure; nothing is lost on the way.
        let again = Lowered { words: linked.words.clone(), interface: kernel.interface };
        let again = link(&again, &[], &Limits { workgroup_bytes: u32::MAX });
        assert_eq!(again.map(|again| again.words).as_ref(), Ok(&linked.words), "case {case}");
        if accepted % SAMPLE == 0 && spirv_val::run("vulkan1.2", &words).is_ok() {
            valid += 1;
            spirv_val::validate(&format!("case {case}"), &linked.words);
        }
    }
    eprintln!("{cases} cases, {accepted} linked; {valid} were valid modules and stayed valid");
    assert!(accepted > cases / 50, "the damage leaves too little to link: {accepted} of {cases}");
}
