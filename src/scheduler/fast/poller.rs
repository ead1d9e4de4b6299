//! The poller: one worker at a time looks for what the host has published.

use super::track::Track;
use super::{Claimed, Fast, Lanes, claim, is_positive, lone};
use crate::ir::{AtomicOp, Builder, MemoryClasses, Order, Scope, SubgroupOp, UnaryOp, Value, Var};
use crate::protocol::{inlet, launch, outlet, state};
use crate::scheduler::worker::{ask_to_leave, beat, reason_to_leave};
use crate::scheduler::{Mutation, intake};

/// What a lane saw in its last look, one for each of its tracks.
pub(super) struct Seen {
    /// Whether the slot's, or the part's, tag is the next generation.
    pub ready: Var,
    /// The part, with [`Lanes::Wide`].
    pub unit: Var,
    /// The control word, with [`Lanes::Wide`].
    control: Var,
}

/// What the poller keeps besides its tracks.
struct Watch {
    seen: Vec<Seen>,
    /// Looks since it last saw to everything else, and their bound.
    turn: Var,
    limit: Value,
    /// Whether one of them found something.
    active: Var,
    /// Looks in a row that found nothing.
    idle: Var,
    /// Looks in a row at a slot of which only a part has arrived.
    late: Var,
    /// Looks of all pollers before.
    polls: Var,
    /// Whether it gives its place up.
    done: Var,
}

/// Tries to take the poller's place, in which `before` was seen. Gives whether it did; the same for all lanes.
pub(super) fn take_place(b: &mut Builder, fast: &Fast, before: Value) -> Value {
    let got = b.var(before);
    b.when(fast.cx.leader, |b| {
        let place = b.at(fast.cx.state, state::PLACE);
        // Acquire: pairs with the release of whoever gave the place up; every lane's own follows in `poll`.
        let order = fast.cx.order(Order::Acquire);
        let found = b.compare_exchange(place, before, fast.stamp, Scope::Device, order);
        let won = b.eq(found, before);
        let found = b.select(won, 1u32, 0u32);
        b.set(got, found);
    });
    let got = b.get(got);
    let got = fast.first_lane(b, got);
    b.eq(got, 1u32)
}

/// Polls until there is something for the worker to run, or to leave for; gives the place up then. With `hurried` one look
/// is all.
pub(super) fn poll(b: &mut Builder, fast: &Fast, tracks: &[Track], claimed: &Claimed, hurried: Value) {
    // Acquire of every lane: the levels' positions, as the poller before left them.
    intake::fence(b, &fast.cx, Order::Acquire);
    for track in tracks {
        track.enter(b, fast);
    }
    let watch = Watch::new(b, fast, tracks, hurried);
    b.when(fast.cx.leader, |b| {
        let polls = b.get(watch.polls);
        beat(b, &fast.cx, polls);
    });
    // Ends: by the host's stop word, the launch's budget or its limit of idle looks, and with the first task that isn't short.
    b.repeat(|b| {
        let ran = watch.run_short_ones(b, fast, tracks);
        let left = b.eq(ran, false);
        b.when(left, |b| watch.act(b, fast, tracks, claimed));
        let (turn, done) = (b.get(watch.turn), b.get(watch.done));
        let spent = b.ge(turn, watch.limit);
        let goes_on = b.eq(done, false);
        let sees = b.and(spent, goes_on);
        b.when(sees, |b| watch.see_to_the_rest(b, fast, claimed, hurried));
        let done = b.get(watch.done);
        b.break_if(done);
    });
    let (turn, polls) = (b.get(watch.turn), b.get(watch.polls));
    let polls = b.add(polls, turn);
    b.set(watch.polls, polls);
    watch.give_up(b, fast, tracks);
}

impl Watch {
    fn new(b: &mut Builder, fast: &Fast, tracks: &[Track], hurried: Value) -> Self {
        let nothing = [(); 4].map(|()| crate::ir::Operand::U32(0));
        let nothing = b.compose(nothing);
        let seen =
            tracks.iter().map(|_| Seen { ready: b.var(false), unit: b.var(nothing), control: b.var(0u32) }).collect();
        let limit = b.param(launch::LOOKS);
        let limit = b.select(hurried, 1u32, limit);
        let polls = b.at(fast.cx.state, state::POLLS);
        let polls = b.load(polls);
        Self {
            seen,
            turn: b.var(0u32),
            limit,
            active: b.var(false),
            idle: b.var(0u32),
            late: b.var(0u32),
            polls: b.var(polls),
            done: b.var(false),
        }
    }

    /// Looks at the next slot of every level until there is something, or it is time to see to the rest.
    fn look(&self, b: &mut Builder, fast: &Fast, tracks: &[Track]) {
        let places: Vec<_> = tracks
            .iter()
            .map(|track| {
                let unit = track.unit(b, fast);
                let control = track.control(b, fast);
                (unit, control, track.generation(b))
            })
            .collect();
        // Ends: each turn counts.
        b.repeat(|b| {
            let turn = b.get(self.turn);
            let turn = b.add(turn, 1u32);
            b.set(self.turn, turn);
            let mut event = b.ge(turn, self.limit);
            for ((track, seen), &(unit, control, generation)) in tracks.iter().zip(&self.seen).zip(&places) {
                let tag = match fast.shape {
                    Lanes::Wide => {
                        let unit = b.load4(unit);
                        let control = b.load(control);
                        b.set(seen.unit, unit);
                        b.set(seen.control, control);
                        let position = b.get(track.position);
                        let rings = rings(b, fast, track, control, position);
                        let told = is_told(b, track, control);
                        event = b.or(event, rings);
                        event = b.or(event, told);
                        b.extract(unit, 0)
                    }
                    Lanes::Few => b.load(unit),
                };
                let ready = b.eq(tag, generation);
                let ready = b.and(ready, track.valid);
                b.set(seen.ready, ready);
                event = b.or(event, ready);
            }
            let any = b.subgroup(SubgroupOp::Any(event));
            b.break_if(any);
        });
    }

    /// Looks, and runs lone NOPs on the spot, until there is something else or it is time to see to the rest. Gives whether what
    /// the last look found has been run. A loop of its own, since drivers that run both sides of every branch pay for all of it.
    fn run_short_ones(&self, b: &mut Builder, fast: &Fast, tracks: &[Track]) -> Value {
        let last = b.var(false);
        // Ends: each look counts.
        b.repeat(|b| {
            self.look(b, fast, tracks);
            let held = self.is_held(b, fast, tracks);
            let ran = lone::run_short(b, fast, tracks, &self.seen, held);
            b.set(last, ran);
            b.when(ran, |b| b.set(self.active, true));
            let turn = b.get(self.turn);
            let spent = b.ge(turn, self.limit);
            let other = b.eq(ran, false);
            let leaves = b.or(spent, other);
            b.break_if(leaves);
        });
        b.get(last)
    }

    /// Whether a batch or the host's stop word comes before a lone task.
    fn is_held(&self, b: &mut Builder, fast: &Fast, tracks: &[Track]) -> Value {
        match fast.shape {
            Lanes::Wide => {
                let mut held = b.value(false);
                for (track, seen) in tracks.iter().zip(&self.seen) {
                    let (control, position) = (b.get(seen.control), b.get(track.position));
                    let batch = rings(b, fast, track, control, position);
                    let told = is_told(b, track, control);
                    let either = b.or(batch, told);
                    held = b.or(held, either);
                }
                b.subgroup(SubgroupOp::Any(held))
            }
            // A worker that is alone gains nothing by a batch. Otherwise it looks at the doorbells.
            Lanes::Few => {
                let held = b.var(false);
                let others = b.gt(fast.cx.workers, 1u32);
                b.when(others, |b| {
                    let mut any = b.value(false);
                    for (track, seen) in tracks.iter().zip(&self.seen) {
                        let post = self.to_post(b, fast, track, seen);
                        let batch = b.gt(post, 1u32);
                        any = b.or(any, batch);
                    }
                    let any = b.subgroup(SubgroupOp::Any(any));
                    b.set(held, any);
                });
                b.get(held)
            }
        }
    }

    /// Does what the last look found, other than to run a lone NOP.
    fn act(&self, b: &mut Builder, fast: &Fast, tracks: &[Track], claimed: &Claimed) {
        let stops = self.stops(b, fast, tracks);
        b.branch(
            stops,
            |b| {
                let reason = b.value(outlet::exit::STOP);
                self.end(b, fast, claimed, reason);
            },
            |b| {
                let posts: Vec<Value> =
                    tracks.iter().zip(&self.seen).map(|(track, seen)| self.to_post(b, fast, track, seen)).collect();
                let (mut batch, mut levels) = (b.value(false), b.value(0u32));
                for (track, &post) in tracks.iter().zip(&posts) {
                    let more = b.gt(post, 1u32);
                    batch = b.or(batch, more);
                    let some = b.ne(post, 0u32);
                    let some = b.and(some, track.lead);
                    let lanes = fast.ballot(b, some);
                    let here = b.unary(UnaryOp::CountOnes, lanes);
                    levels = b.add(levels, here);
                }
                let batch = b.subgroup(SubgroupOp::Any(batch));
                // Where several levels have tasks, who claims them sees to it that none is passed over for ever.
                let several = b.gt(levels, 1u32);
                let batch = b.or(batch, several);
                b.branch(
                    batch,
                    |b| {
                        b.set(self.active, true);
                        lone::post(b, fast, tracks, &posts);
                        b.set(self.done, fast.few);
                    },
                    |b| {
                        let whole = lone::take(b, fast, tracks, &self.seen, claimed, self.done);
                        let begun = b.ne(levels, 0u32);
                        let partial = b.eq(whole, false);
                        let partial = b.and(partial, begun);
                        b.when(whole, |b| b.set(self.active, true));
                        self.wait_for_rest(b, fast, tracks, &posts, partial);
                    },
                );
            },
        );
    }

    /// Counts looks at a slot of which only a part has arrived. After as many as a claimer would take it is posted all the same: who
    /// claims it says what becomes of it.
    fn wait_for_rest(&self, b: &mut Builder, fast: &Fast, tracks: &[Track], posts: &[Value], partial: Value) {
        let late = b.get(self.late);
        let late = b.add(late, 1u32);
        let late = b.select(partial, late, 0u32);
        b.set(self.late, late);
        let lost = b.ge(late, intake::ARRIVAL_BUDGET);
        b.when(lost, |b| {
            b.set(self.late, 0u32);
            lone::post(b, fast, tracks, posts);
            b.set(self.done, fast.few);
        });
    }

    /// Whether the host's stop word is set, as far as looks tell.
    fn stops(&self, b: &mut Builder, fast: &Fast, tracks: &[Track]) -> Value {
        let mut stops = b.value(false);
        if fast.shape == Lanes::Wide {
            for (track, seen) in tracks.iter().zip(&self.seen) {
                let control = b.get(seen.control);
                let told = is_told(b, track, control);
                stops = b.or(stops, told);
            }
        }
        b.subgroup(SubgroupOp::Any(stops))
    }

    /// How many tasks of the track's level are there to be posted, if any: those before the doorbell, or the next slot's.
    fn to_post(&self, b: &mut Builder, fast: &Fast, track: &Track, seen: &Seen) -> Value {
        let position = b.get(track.position);
        let (bell, ready) = match fast.shape {
            Lanes::Wide => {
                // Each lane of a level goes by what the level's first one saw.
                let first = b.shl(track.level, 2u32);
                let control = b.get(seen.control);
                let bell = b.subgroup(SubgroupOp::Shuffle(control, first));
                let ready = b.get(seen.ready);
                let ready = b.select(ready, 1u32, 0u32);
                (bell, b.subgroup(SubgroupOp::Shuffle(ready, first)))
            }
            Lanes::Few => {
                let bell = b.add(track.level, inlet::DOORBELLS);
                let bell = b.at(fast.cx.inlet, bell);
                let bell = b.load(bell);
                let ready = b.get(seen.ready);
                (bell, b.select(ready, 1u32, 0u32))
            }
        };
        let rings = match fast.shape {
            Lanes::Wide => is_batch(b, fast, bell, position),
            Lanes::Few => rings(b, fast, track, bell, position),
        };
        let distance = b.sub(bell, position);
        b.select(rings, distance, ready)
    }

    /// Sees to what needs no look at every turn: shows that it lives, and ends the launch or gives its place up.
    fn see_to_the_rest(&self, b: &mut Builder, fast: &Fast, claimed: &Claimed, hurried: Value) {
        let cx = &fast.cx;
        let (turn, polls) = (b.get(self.turn), b.get(self.polls));
        let polls = b.add(polls, turn);
        b.set(self.polls, polls);
        b.set(self.turn, 0u32);
        b.when(cx.leader, |b| beat(b, cx, polls));
        let passes = b.get(claimed.passes);
        let passes = b.add(passes, turn);
        b.set(claimed.passes, passes);

        let reason = reason_to_leave(b, cx);
        let reason = fast.first_lane(b, reason);
        let claims = self.counter(b, fast, state::CLAIM_COUNT);
        let dones = self.counter(b, fast, state::DONE_COUNT);
        let busy = b.ne(claims, dones);
        let active = b.get(self.active);
        b.set(self.active, false);
        let moves = b.or(active, busy);
        let idle = b.get(self.idle);
        let idle = b.add(idle, turn);
        let idle = b.select(moves, 0u32, idle);
        b.set(self.idle, idle);
        let limit = b.param(launch::IDLE_LIMIT);
        let parks = b.ne(limit, 0u32);
        let long = b.ge(idle, limit);
        let parks = b.and(parks, long);
        let target = b.param(launch::TARGET);
        let all = b.ne(target, 0u32);
        let reached = b.eq(claims, target);
        let all = b.and(all, reached);
        let mut parks = b.or(parks, all);
        if cx.mutation == Some(Mutation::LeaveAtOnce) {
            parks = b.eq(active, false);
        }
        let spent = claimed.is_spent(b);
        let told = b.ne(reason, 0u32);
        let other = b.select(spent, outlet::exit::BUDGET, outlet::exit::IDLE);
        let reason = b.select(told, reason, other);
        let ends = b.or(parks, spent);
        let ends = b.or(ends, told);
        b.when(ends, |b| self.end(b, fast, claimed, reason));

        // What is posted waits for workers that may all be busy: then the poller is one of those who take it.
        let backlog = claim::Backlog::load(b, fast);
        let waits = backlog.any(b);
        let idles = b.eq(active, false);
        let takes = b.or(idles, fast.few);
        let takes = b.and(takes, waits);
        let goes = b.or(takes, hurried);
        b.when(goes, |b| b.set(self.done, true));
    }

    /// A counter of the state buffer, the same for all lanes.
    fn counter(&self, b: &mut Builder, fast: &Fast, word: u32) -> Value {
        let place = b.at(fast.cx.state, word);
        let value = b.load(place);
        fast.first_lane(b, value)
    }

    /// Ends the launch: the others read it in the state buffer. Where the host wants it, the worker starts nothing more; else
    /// it may claim once yet, so that a launch of one pass gets on.
    fn end(&self, b: &mut Builder, fast: &Fast, claimed: &Claimed, reason: Value) {
        b.when(fast.cx.leader, |b| ask_to_leave(b, &fast.cx, reason));
        let stop = b.eq(reason, outlet::exit::STOP);
        let exit = b.select(stop, reason, 0u32);
        b.set(claimed.exit, exit);
        b.set(self.done, true);
    }

    /// Gives the place up, with the levels' positions.
    fn give_up(&self, b: &mut Builder, fast: &Fast, tracks: &[Track]) {
        let cx = &fast.cx;
        for track in tracks {
            track.leave(b, fast);
        }
        b.when(cx.leader, |b| {
            let polls = b.get(self.polls);
            let place = b.at(cx.state, state::POLLS);
            b.store(place, polls);
        });
        // Release of every lane, then all lanes before the leader's own: pairs with the acquires of the next poller.
        intake::fence(b, cx, Order::Release);
        b.subgroup_barrier(MemoryClasses::BUFFERS);
        if cx.mutation == Some(Mutation::PlaceKept) {
            return;
        }
        b.when(cx.leader, |b| {
            let place = b.at(cx.state, state::PLACE);
            let order = cx.order(Order::Release);
            b.atomic(AtomicOp::Exchange, place, 0u32, Scope::Device, order);
        });
    }
}

/// Whether what the lane reads beside its unit is the stop word, and set.
fn is_told(b: &mut Builder, track: &Track, control: Value) -> Value {
    let set = b.ne(control, 0u32);
    let listens = track.listens(b);
    b.and(set, listens)
}

/// Whether a level's doorbell has more than the next task; for the lane that speaks for the level.
fn rings(b: &mut Builder, fast: &Fast, track: &Track, bell: Value, position: Value) -> Value {
    let batch = is_batch(b, fast, bell, position);
    b.and(batch, track.lead)
}

/// Whether a doorbell is more than one ahead of a position. It may be behind: an old one says nothing.
fn is_batch(b: &mut Builder, fast: &Fast, bell: Value, position: Value) -> Value {
    let ahead = b.sub(bell, position);
    if fast.cx.mutation == Some(Mutation::DoorbellUnsigned) {
        return b.gt(ahead, 1u32);
    }
    let beyond = b.sub(ahead, 1u32);
    is_positive(b, beyond)
}
