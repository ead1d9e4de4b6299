//! The longest payloads, copied by a handler and compared word for word.

use std::time::{Duration, Instant};

use abide::queue::{Outcome, Task};
use abide::runtime::RuntimeBuilder;

use crate::handlers::{ECHO_WORDS, echo};

/// Copies that tasks may be making at once.
const REGIONS: u32 = 32;

/// Runs so many tasks; tells the first whose payload didn't arrive whole, and gives up where none ends for `patience`.
pub fn run_payloads(mut builder: RuntimeBuilder<'_>, tasks: u64, patience: Duration) -> Result<(), String> {
    let opcode = builder.handler(echo(), "main");
    let (runtime, mut submission, mut completion) = builder.build().map_err(|error| error.to_string())?;
    let stride = ECHO_WORDS.next_multiple_of(16);
    let copies = runtime.buffer("copies", u64::from(REGIONS * stride) * 4).map_err(|error| error.to_string())?;
    let mapped = copies.mapped().ok_or("the copies aren't mapped")?;
    let table = runtime.bind(&[&copies]).map_err(|error| error.to_string())?;
    let payload = |number: u64, region: u32| -> [u32; ECHO_WORDS as usize] {
        let word = |at: usize| (number as u32).wrapping_mul(0x9e37_79b1).rotate_left(at as u32) ^ at as u32;
        std::array::from_fn(|at| if at == 0 { region * stride } else { word(at) })
    };
    let mut free: Vec<u32> = (0..REGIONS).collect();
    let (mut pushed, mut done, mut progress) = (0, 0, Instant::now());
    while done < tasks {
        while let Some(&region) = free.last().filter(|_| pushed < tasks) {
            let payload = payload(pushed, region);
            let user_data = pushed << 32 | u64::from(region);
            let task = Task::new(opcode).level(0).bindings(table.index()).user_data(user_data).payload(&payload);
            if submission.push(task).is_err() {
                break;
            }
            free.pop();
            pushed += 1;
        }
        submission.publish().map_err(|error| error.to_string())?;
        while let Some(completion) = completion.poll() {
            let (number, region) = (completion.user_data >> 32, completion.user_data as u32);
            if completion.outcome != Outcome::Done {
                return Err(format!("task {number}: {:?}", completion.outcome));
            }
            let mut found = [0; ECHO_WORDS as usize];
            mapped.read((region * stride) as usize, &mut found);
            let expected = payload(number, region);
            if let Some(at) = found.iter().zip(&expected).position(|(found, expected)| found != expected) {
                return Err(format!("task {number}: word {at} is {:#x}, not {:#x}", found[at], expected[at]));
            }
            free.push(region);
            done += 1;
            progress = Instant::now();
        }
        if progress.elapsed() > patience {
            return Err(format!("{done} of {pushed} tasks done: {:?}", runtime.health()));
        }
    }
    match completion.strays() {
        0 => Ok(()),
        strays => Err(format!("{strays} stray completions")),
    }
}
