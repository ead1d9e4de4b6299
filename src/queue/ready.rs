//! Completions that were consumed while another was waited for: kept in order, until they are polled or waited for.
//!
//! A doubly linked list over one preallocated node for each table entry, so that parking, polling and taking one from
//! the middle cost the same whatever the order.

/// No node.
const NONE: u32 = u32::MAX;

/// A parked completion.
#[derive(Clone, Copy, Debug)]
struct Node {
    result: u32,
    outcome: u32,
    previous: u32,
    next: u32,
}

/// The parked completions, oldest first.
#[derive(Debug)]
pub struct Ready {
    nodes: Box<[Node]>,
    first: u32,
    last: u32,
    len: u64,
}

impl Ready {
    /// A list that has a node for each of `nodes` table entries.
    pub fn new(nodes: u32) -> Self {
        let node = Node { result: 0, outcome: 0, previous: NONE, next: NONE };
        Self { nodes: vec![node; nodes as usize].into(), first: NONE, last: NONE, len: 0 }
    }

    /// Number of parked completions.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The oldest node.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Parks a completion at `node`, which is free, behind all others.
    pub fn park(&mut self, node: u32, result: u32, outcome: u32) {
        self.nodes[node as usize] = Node { result, outcome, previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = node,
            last => self.nodes[last as usize].next = node,
        }
        self.last = node;
        self.len += 1;
    }

    /// Takes the completion at `node`, which is parked: its result and outcome words.
    pub fn take(&mut self, node: u32) -> (u32, u32) {
        let Node { result, outcome, previous, next } = self.nodes[node as usize];
        match previous {
            NONE => self.first = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        self.len -= 1;
        (result, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_leave_in_order_but_for_those_taken_from_the_middle() {
        let mut ready = Ready::new(8);
        for node in [5, 2, 7, 0] {
            ready.park(node, node * 10, node);
        }
        assert_eq!(ready.take(7), (70, 7));
        assert_eq!(ready.take(0), (0, 0));
        ready.park(7, 71, 3);
        let mut left = Vec::new();
        while let Some(node) = ready.first() {
            left.push((node, ready.take(node).0));
        }
        assert_eq!(left, [(5, 50), (2, 20), (7, 71)]);
        assert_eq!((ready.len(), ready.first()), (0, None));
    }
}
